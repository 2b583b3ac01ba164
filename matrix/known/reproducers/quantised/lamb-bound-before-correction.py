"""On the CPU, LAMB compares its bound with an update whose bias is not corrected, and then corrects what is left.

Shows with bitsandbytes 0.50. No thread found on 2026-11-26; bitsandbytes-foundation/bitsandbytes#1901 added it.
Exit code: 0 the first step is as long as the bound, 1 shorter by the correction, 77 this bitsandbytes has no optimisers
on CPUs, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import bitsandbytes
import torch

torch.manual_seed(0)
start = torch.randn(4200) / 10
weight = torch.nn.Parameter(start.clone())
weight.grad = torch.randn(4200)
rate = 0.01
try:
    bitsandbytes.optim.LAMB32bit([weight], lr=rate, weight_decay=0.0, max_unorm=1.0).step()
except (AttributeError, AssertionError, NameError, NotImplementedError, RuntimeError) as error:
    print(f"bitsandbytes {bitsandbytes.__version__} has no LAMB on CPUs: {error}", file=sys.stderr)
    sys.exit(77)
found = float((weight.detach() - start).norm() / (rate * start.norm()))
correction = (1 - 0.999) ** 0.5 / (1 - 0.9)
print(f"length of the first step over its bound: found {found:.4f}, expected 1 (the correction: {correction:.4f})")
sys.exit(0 if abs(found - 1) < 1e-3 else 1 if abs(found - correction) < 1e-3 else 3)
