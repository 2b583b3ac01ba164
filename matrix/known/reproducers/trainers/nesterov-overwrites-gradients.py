"""A step of torch's SGD with nesterov=True and foreach=True changes the gradients.

Shows with torch 2.5 to 2.15. No thread found on 2026-11-26; related: pytorch/pytorch#30257, pytorch/pytorch#92706.
Exit code: 0 they stay, 1 they are those plus the momentum, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch


def after_a_step(*, foreach):
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.full_like(weight, 0.5)
    torch.optim.SGD([weight], lr=0.1, momentum=0.9, nesterov=True, foreach=foreach).step()
    return float(weight.grad[0]), weight.detach()


(plain, by_loop), (found, at_once) = after_a_step(foreach=False), after_a_step(foreach=True)
print(f"gradient after a step with foreach=True: found {found:.3g}, expected {plain:.3g} as with foreach=False")
if plain != 0.5 or not torch.allclose(by_loop, at_once):
    sys.exit(3)
sys.exit(0 if found == plain else 1 if abs(found - (0.5 + 0.9 * 0.5)) < 1e-6 else 3)
