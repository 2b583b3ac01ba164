"""bitsandbytes' SGD and LARS take nesterov and dampening, and step as without them.

Shows with bitsandbytes 0.50 on CPUs. Reported in bitsandbytes-foundation/bitsandbytes#2085.
Exit code: 0 each changes the steps or is refused, 1 one is ignored, 77 these optimisers need a GPU here, anything
else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes import optim


def stepped(optimiser, **more):
    weight = torch.nn.Parameter(torch.ones(4))
    stepping = optimiser([weight], lr=0.1, momentum=0.9, **more)
    for _ in range(2):
        weight.grad = torch.ones(4)
        stepping.step()
    return weight.detach()


# Older releases step on GPUs only. Without their GPU library, each fails in a way of its own.
try:
    usual = {made: stepped(made) for made in (optim.SGD32bit, optim.LARS32bit)}
except (AssertionError, AttributeError, NameError, NotImplementedError, RuntimeError) as error:
    print(error, file=sys.stderr)
    sys.exit(77)
ignored, refused = [], []
for made, plain in usual.items():
    for argument, value in (("nesterov", True), ("dampening", 0.5)):
        try:
            if torch.equal(stepped(made, **{argument: value}), plain):
                ignored.append(f"{argument} of {made.__name__}")
        except (ValueError, NotImplementedError):
            refused.append(f"{argument} of {made.__name__}")
theirs = [stepped(torch.optim.SGD, **more) for more in ({}, {"nesterov": True})]
differ = float((theirs[0] - theirs[1]).abs().max())
torch_has = f"nesterov of torch's SGD has {differ:.3f}"
print(f"arguments without an effect: found {ignored}, expected [] (refused: {refused}; {torch_has})")
sys.exit(1 if ignored else 0)
