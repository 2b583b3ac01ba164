"""LoRA on torch's MultiheadAttention adds the update of the output projection twice.

Shows with peft 0.15 to 0.21. Reported in huggingface/peft#3774.
Exit code: 0 once, 1 twice, 77 no LoRA on attention, anything else: something else happened.
"""

import copy
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

torch.manual_seed(0)
attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
rows = [torch.randn(2, 3, 8) for _ in range(3)]
config = LoraConfig(r=2, target_modules=["0"], init_lora_weights=False)
try:
    model = get_peft_model(torch.nn.Sequential(copy.deepcopy(attention)), config).eval()
except ValueError as error:
    print(str(error).splitlines()[0])
    sys.exit(77 if "is not supported" in str(error) else 3)
layer = model.base_model.model[0]


def update(part):
    return part.scaling["default"] * part.lora_B["default"].weight @ part.lora_A["default"].weight


def off(times):
    """How far the outputs are from those of weights with the updates, that of the outputs some times."""
    wanted = copy.deepcopy(attention)
    with torch.no_grad():
        wanted.in_proj_weight.add_(update(layer))
        wanted.out_proj.weight.add_(times * update(layer.base_layer.out_proj))
        return float((layer(*rows)[0] - wanted(*rows)[0]).norm() / wanted(*rows)[0].norm())


once, twice = off(1), off(2)
print(f"outputs off those of one update: found {once:.2g}, expected below 1e-5 (off those of two: {twice:.2g})")
sys.exit(0 if once < 1e-5 else 1 if twice < 1e-5 else 3)
