"""Merging LoRA with lora_bias=True adds the bias of B without the adapter's scaling.

Shows with peft 0.14 and 0.15, not with 0.17. Thread: huggingface/peft#2486 (fixed by #2489).
Exit code: 0 right, 1 not scaled, 77 this peft has no lora_bias, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import inspect

import torch
from peft import LoraConfig, get_peft_model

if "lora_bias" not in inspect.signature(LoraConfig).parameters:
    sys.exit(77)
SCALING = 4
config = LoraConfig(target_modules=["0"], r=2, lora_alpha=2 * SCALING, lora_bias=True)
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8)), config)
layer = model.base_model.model[0]
before, nothing = layer.base_layer.bias.detach().clone(), torch.zeros(1, 8)
with torch.no_grad():
    layer.lora_B["default"].bias.fill_(1.0)
    applied = float((model(nothing)[0] - before).mean())
added = float((model.merge_and_unload()[0].bias - before).detach().mean())
print(f"what merging adds to the bias: found {added:.3f}, expected {applied:.3f}, as the adapter does")
sys.exit(0 if abs(added - applied) < 1e-5 else 1 if abs(added * SCALING - applied) < 1e-5 else 3)
