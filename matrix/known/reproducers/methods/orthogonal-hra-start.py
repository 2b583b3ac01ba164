"""HRA with apply_GS=True does not start as the base: Gram-Schmidt normalises the rounding error of equal vectors.

Shows with peft 0.14 to 0.21, or gives NaN. No thread found on 2026-11-23; related: huggingface/peft#1864.
Exit code: 0 starts as the base, 1 not, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import HRAConfig, get_peft_model

torch.manual_seed(0)
inputs = torch.randn(4, 32)


def off(*, orthogonal):
    layer = torch.nn.Linear(32, 32)
    expected = layer(inputs).detach()
    config = HRAConfig(target_modules=["0"], r=4, apply_GS=orthogonal)
    found = get_peft_model(torch.nn.Sequential(layer), config)(inputs).detach()
    return float((found - expected).norm() / expected.norm())


free, found = off(orthogonal=False), off(orthogonal=True)
print(f"outputs at the start, off those of the base: found {found:.2g} ({free:.2g} without apply_GS), expected < 1e-4")
sys.exit(3 if free > 1e-4 else not found <= 1e-4)  # it may be NaN
