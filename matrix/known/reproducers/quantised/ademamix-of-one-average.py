"""AdEMAMix32bit allocates one average of the gradient instead of two, so its first step raises on a CPU.

Reported in bitsandbytes-foundation/bitsandbytes#2075. AdEMAMix8bit and AdEMAMix(optim_bits=32) have both.
Exit code: 0 right, 1 the step raises or is wrong, 77 these optimisers need a GPU here, else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes import optim


def stepped(optimiser, **more):
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(4096))
    weight.grad = torch.randn(4096)
    optimiser([weight], lr=0.1, weight_decay=0.0, **more).step()
    return weight.detach()


# Older releases step on GPUs only. Without their GPU library, each fails in a way of its own.
try:
    stepped(optim.AdamW32bit)
except (AssertionError, AttributeError, NameError, NotImplementedError, RuntimeError) as error:
    print(error, file=sys.stderr)
    sys.exit(77)
expected = stepped(optim.AdEMAMix, optim_bits=32)
try:
    found = float((stepped(optim.AdEMAMix32bit) - expected).abs().max())
except RuntimeError as error:
    found = str(error)
print(f"weights after a step off AdEMAMix's: found {found}, expected 0")
sys.exit(found != 0)
