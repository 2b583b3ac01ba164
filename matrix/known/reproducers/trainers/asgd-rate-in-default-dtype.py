"""torch.optim.ASGD rounds its learning rate to the default dtype, although weights and state are float32.

Shows with torch 2.2 to 2.15. No thread found on 2026-11-23; related: pytorch/pytorch#111008.
Exit code: 0 the formula in float32, 1 rounded to bfloat16, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch

RATE, LAMBDA, ALPHA = 0.01, 1e-4, 0.75  # torch's defaults

torch.set_default_dtype(torch.bfloat16)
weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float32))
optimiser = torch.optim.ASGD([weight], lr=RATE, lambd=LAMBDA, alpha=ALPHA)
weight.grad = torch.ones_like(weight)
optimiser.step()
eta = optimiser.state[weight]["eta"]
found, expected = eta.item(), RATE / (1 + LAMBDA * RATE) ** ALPHA  # of the documentation, after one step
rounded = torch.tensor(expected, dtype=torch.bfloat16).item()
print(f"learning rate of the second step, {eta.dtype}: found {found:.8f}, expected {expected:.8f}")
sys.exit(0 if abs(found / expected - 1) < 1e-6 else 1 if found == rounded else 3)
