"""LARS8bit ignores max_unorm, the bound that makes it LARS.

Shows with bitsandbytes 0.50 on CPUs. No thread found on 2026-11-26; bitsandbytes-foundation/bitsandbytes#1998 is near.
Exit code: 0 the step stays below its bound, 1 it is that of a plain momentum, 77 this bitsandbytes has no optimisers on
CPUs, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import bitsandbytes
import torch

torch.manual_seed(0)
start = torch.randn(4200) / 100
weight = torch.nn.Parameter(start.clone())
weight.grad = torch.randn(4200)
rate, bound = 0.01, 0.02
try:
    bitsandbytes.optim.LARS8bit([weight], lr=rate, momentum=0.9, max_unorm=bound).step()
except (AttributeError, AssertionError, NameError, NotImplementedError, RuntimeError) as error:
    print(f"bitsandbytes {bitsandbytes.__version__} has no LARS8bit on CPUs: {error}", file=sys.stderr)
    sys.exit(77)
step = float((weight.detach() - start).norm() / rate)
found, plain = step / float(bound * start.norm()), step / float(weight.grad.norm())
print(
    f"length of the first step over its bound: found {found:.1f}, expected 1 or less (over the gradient: {plain:.2f})"
)
sys.exit(0 if found < 1.02 else 1 if abs(plain - 1) < 0.02 else 3)
