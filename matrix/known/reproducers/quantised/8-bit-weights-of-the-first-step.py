"""With zero_grad(set_to_none=False), a Linear8bitLt that keeps its weight computes with the weight of its first step.

With has_fp16_weights=True, its default, it quantises the weight in a forward only if the weight has no gradient.
Shows with bitsandbytes 0.50 on a CPU. No thread found on 2026-11-27; related:
bitsandbytes-foundation/bitsandbytes#1628.
Exit code: 0 right, 1 an old weight, 77 this version has no 8 bits on CPUs, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.nn import Linear8bitLt

STEPS = 20
torch.manual_seed(0)
start, inputs, wanted = torch.randn(48, 64) / 8, torch.randn(256, 64), torch.randn(256, 48)


def trained(set_to_none):
    """How far the last outputs are from those of the weight of their step, and of the first one; relative."""
    layer = Linear8bitLt(64, 48, bias=False, has_fp16_weights=True)
    layer.load_state_dict({"weight": start})
    layer = layer.to("cpu")
    optimiser = torch.optim.SGD(layer.parameters(), lr=5.0)
    for _ in range(STEPS):
        optimiser.zero_grad(set_to_none=set_to_none)
        found, weight = layer(inputs), layer.weight.detach().clone()
        torch.nn.functional.mse_loss(found, wanted).backward()
        optimiser.step()
    found = found.detach()
    return [float((found - inputs @ each.T).norm() / (inputs @ each.T).norm()) for each in (weight, start)]


try:
    right, moved = trained(set_to_none=True)
except (AssertionError, AttributeError, NotImplementedError, RuntimeError) as error:  # older releases
    print(f"8-bit layers on a CPU: {str(error).splitlines()[0]}", file=sys.stderr)
    sys.exit(77)
now, first = trained(set_to_none=False)
print(f"outputs of step {STEPS} off by: found {now:.2g}, expected {right:.2g} as with set_to_none=True")
print(f"from those of the weight of step 1: {first:.2g}, with set_to_none=True {moved:.2g}")
# 8 bits round each number by at most 1/254 of the largest of its row.
sys.exit(3 if right > 0.02 or moved < 0.1 else 0 if now <= 0.02 else 1 if first <= 0.02 else 3)
