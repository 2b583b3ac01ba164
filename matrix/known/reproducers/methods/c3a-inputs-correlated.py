"""C3A gives the inputs of a layer a gradient that is not the one of its outputs.

Shows with peft 0.17 to 0.21. No thread found on 2026-11-26; related: huggingface/peft#2577.
Exit code: 0 the gradient of the merged layer, 1 another, 77 this peft has no C3A, else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

if not hasattr(peft, "C3AConfig"):
    print(f"peft {peft.__version__} has no C3A", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)
rows = torch.randn(4, 16)
config = peft.C3AConfig(target_modules=["0"], block_size=8)
model = peft.get_peft_model(torch.nn.Sequential(torch.nn.Linear(16, 16)), config)
torch.nn.init.normal_(model.base_model.model[0].c3a_kernel["default"])


def passed():
    """The outputs, and the gradient of half the sum of their squares by the inputs."""
    given = rows.clone().requires_grad_()
    outputs = model(given)
    (outputs.square().sum() / 2).backward()
    return outputs.detach(), given.grad


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


outputs, gradient = passed()
model.merge_adapter()
same, expected = passed()
if relative(outputs, same) > 1e-4:
    print("the merged layer has other outputs")
    sys.exit(3)
off = relative(gradient, expected)
print(f"gradient of the inputs, off that of the merged layer: found {off:.2g}, expected < 1e-4")
sys.exit(off > 1e-4)
