"""A LoHa layer that rank_pattern and alpha_pattern match by different keys gets the rank only.

Shows with peft 0.11 to 0.14, not with 0.15. No thread found on 2026-11-26.
Exit code: 0 right, 1 alpha is that of other layers, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoHaConfig, get_peft_model

patterns = {"rank_pattern": {"layer": 2}, "alpha_pattern": {"model.layer": 20}}
base = torch.nn.Module()
base.model = torch.nn.Module()
base.model.layer = torch.nn.Linear(8, 8)
model = get_peft_model(base, LoHaConfig(target_modules=["layer"], r=4, alpha=8, **patterns))
layer = model.base_model.model.model.layer
found = (layer.r["default"], layer.alpha["default"])
print(f"rank and alpha: found {found}, expected (2, 20)")
sys.exit({(2, 20): 0, (2, 8): 1}.get(found, 3))
