"""FourierFT cannot merge adapters of Conv1D layers, which store their weights transposed.

Shows at least with peft 0.12 to 0.18, not with 0.21. No thread found on 2026-11-26.
Exit code: 0 right, 1 RuntimeError, 77 this peft has no FourierFT, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch
from transformers.pytorch_utils import Conv1D

if not hasattr(peft, "FourierFTConfig"):
    sys.exit(77)
torch.manual_seed(0)
config = peft.FourierFTConfig(target_modules=["0"], n_frequency=20, fan_in_fan_out=True, init_weights=False)
model = peft.get_peft_model(torch.nn.Sequential(Conv1D(8, 4)), config).eval()
rows = torch.randn(3, 4)
expected = model(rows).detach()
try:
    found = model.merge_and_unload()(rows).detach()
except RuntimeError as error:
    print(f"merging into a layer of 4 inputs and 8 outputs: found RuntimeError ({error}), expected a merged layer")
    sys.exit(1)
off = float((found - expected).abs().max())
print(f"outputs of the merged layer, off those before: found {off:.1e}, expected < 1e-4")
sys.exit(0 if off < 1e-4 else 3)
