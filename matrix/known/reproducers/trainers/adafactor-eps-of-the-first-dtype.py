"""torch's Adafactor takes its default eps from the dtype of the first parameter, and keeps it for all others.

Shows with torch 2.5 to 2.15. No thread found on 2026-11-26; related: pytorch/pytorch#129905.
Exit code: 0 the eps of each dtype, 1 that of the first, 77 torch has no Adafactor, else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch

if not hasattr(torch.optim, "Adafactor"):
    print(f"torch {torch.__version__} has no Adafactor", file=sys.stderr)
    sys.exit(77)


def step(*dtypes):
    """The first step of a float32 weight, with weights of some dtypes before it in its group."""
    weights = [torch.nn.Parameter(torch.ones(4, 4, dtype=dtype)) for dtype in (*dtypes, torch.float32)]
    for each in weights:
        each.grad = torch.full_like(each, 1e-4)
    torch.optim.Adafactor(weights, lr=0.25).step()
    return float((1 - weights[-1].detach()).mean())


alone, beside = step(), step(torch.bfloat16)
print(f"step of float32 after a bfloat16 weight: found {beside:.4g}, expected {alone:.4g} as alone")
sys.exit(3 if abs(alone - 0.25) > 1e-4 else 0 if beside == alone else 1)
