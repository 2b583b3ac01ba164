"""The first step of torch's SGD with momentum has no derivative by the gradient, in spite of differentiable=True.

Shows with torch 2.5 to 2.15. No thread found on 2026-11-26; related: pytorch/pytorch#45597, pytorch/pytorch#143947.
Exit code: 0 the derivative, 1 none, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch

RATE = 0.1


def derivative(momentum):
    """The derivative of the first step of a weight by its gradient."""
    gradient = torch.ones((), dtype=torch.float64, requires_grad=True)
    weight = torch.ones((), dtype=torch.float64, requires_grad=True).clone()
    weight.grad = gradient * 1
    torch.optim.SGD([weight], lr=RATE, momentum=momentum, differentiable=True).step()
    return float(torch.autograd.grad(weight, gradient, materialize_grads=True, allow_unused=True)[0])


plain, found = derivative(0), derivative(0.9)
print(f"derivative of the first step with momentum: found {found:.3g}, expected {plain:.3g} as without momentum")
sys.exit(3 if plain != -RATE else 0 if found == plain else 1 if found == 0 else 3)
