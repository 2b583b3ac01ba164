"""save_pretrained of a model with two adapters writes the tensors of both into each file, if they are not LoRA.

Shows with PEFT 0.10 to 0.19, not with 0.21. huggingface/peft#3282 fixes it.
Exit code: 0 right, 1 a file has the other adapter's tensors, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import IA3Config, get_peft_model
from safetensors import safe_open


def config():
    return IA3Config(target_modules=["0"], feedforward_modules=[])


model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(4, 4)), config(), adapter_name="first")
model.add_adapter("second", config())
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    with safe_open(f"{folder}/first/adapter_model.safetensors", "pt") as file:
        found = sorted(file.keys())
expected = ["base_model.model.0.ia3_l"]
print(f"tensors in the file of the first adapter: found {found}, expected {expected}")
sys.exit(0 if found == expected else 1 if [*expected, f"{expected[0]}.second"] == found else 3)
