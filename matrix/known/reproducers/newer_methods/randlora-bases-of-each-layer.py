"""A file of RandLoRA holds the two random matrices, which all layers share, once for each layer and once more.

Shows with peft 0.21. Reported in huggingface/peft#3709; huggingface/peft#3714 repairs it after peft 0.21.
Exit code: 0 once, 1 more often, 77 this peft has no RandLoRA, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch
from safetensors import safe_open

if not hasattr(peft, "RandLoraConfig"):
    print(f"peft {peft.__version__} has no RandLoRA", file=sys.stderr)
    sys.exit(77)
base = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
model = peft.get_peft_model(base, peft.RandLoraConfig(r=2, target_modules=["0", "1", "2"], save_projection=True))
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    with safe_open(f"{folder}/adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
found = [sum(part in name for name in names) for part in ("randlora_A", "randlora_B")]
print(f"tensors randlora_A, randlora_B in the file of three layers: found {found}, expected [1, 1]")
sys.exit(0 if found == [1, 1] else 1 if min(found) > 1 else 3)
