"""A second VeRA adapter with fewer ranks than the first is accepted, and the forward raises.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#1900.
Exit code: 0 computes, 1 raises, 77 this peft has no VeRA, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

if not hasattr(peft, "VeraConfig"):
    print(f"peft {peft.__version__} has no VeRA", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)
layer = torch.nn.Linear(8, 8, bias=False)
inputs, weight = torch.randn(3, 8), layer.weight
model = peft.get_peft_model(torch.nn.Sequential(layer), peft.VeraConfig(r=4, target_modules=["0"]))
model.add_adapter("second", peft.VeraConfig(r=2, target_modules=["0"], init_weights=False))
model.set_adapter("second")
try:
    found = model(inputs)
except RuntimeError as error:
    print(f"forward of the second adapter: found {error!r}, expected an output")
    sys.exit(("size of tensor" not in str(error) and 3) or 1)
held = model.base_model.model[0]
b, d = held.vera_lambda_b["second"], held.vera_lambda_d["second"]
a_, b_ = held.vera_A["second"][: len(d)], held.vera_B["second"][:, : len(d)]
off = float((found - inputs @ (weight + b[:, None] * b_ @ (d[:, None] * a_)).T).abs().max())  # arXiv:2310.11454
print(f"output of the second adapter off the paper's formula: found {off:.2g}, expected < 1e-5")
sys.exit(0 if off < 1e-5 else 3)
