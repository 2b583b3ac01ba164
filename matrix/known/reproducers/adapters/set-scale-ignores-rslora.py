"""LoraLayer.set_scale multiplies by alpha / r although the adapter has use_rslora=True.

Shows with peft 0.14 to 0.17; not with 0.18. Thread: huggingface/peft#2775 (fixed in 0.18).
Exit code: 0 alpha / sqrt(r), 1 alpha / r, anything else: something else happened.
"""

import math
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

RANK, ALPHA = 4, 8

config = LoraConfig(target_modules=["0"], r=RANK, lora_alpha=ALPHA, use_rslora=True)
layer = get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8)), config).base_model.model[0]
layer.set_scale("default", 1.0)
found, expected = layer.scaling["default"], ALPHA / math.sqrt(RANK)  # arXiv:2312.03732
print(f"scaling after set_scale(adapter, 1): found {found:.3f}, expected {expected:.3f}")
sys.exit({expected: 0, ALPHA / RANK: 1}.get(found, 3))
