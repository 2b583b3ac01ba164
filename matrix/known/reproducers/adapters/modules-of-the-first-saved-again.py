"""A second adapter also gets a copy of each module in the first one's modules_to_save, and saves it in its file.

Shows with PEFT 0.14 and before, not with 0.15. huggingface/peft#2220 fixes it.
Exit code: 0 its own module, 1 the first one's too, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model
from safetensors import safe_open

base = torch.nn.Sequential(*(torch.nn.Linear(4, 4, bias=False) for _ in range(3)))
model = get_peft_model(base, LoraConfig(target_modules=["0"], modules_to_save=["1"]), adapter_name="first")
model.add_adapter("second", LoraConfig(target_modules=["0"], modules_to_save=["2"]))
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    with safe_open(f"{folder}/second/adapter_model.safetensors", "pt") as file:
        names = sorted(file.keys())
found = [name.removeprefix("base_model.model.") for name in names if "lora" not in name]
expected = ["2.weight"]
print(f"modules in the file of the second adapter: found {found}, expected {expected}")
sys.exit(0 if found == expected else 1 if found == ["1.weight", *expected] else 3)
