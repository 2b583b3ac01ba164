"""On a CPU, Linear8bitLt with has_fp16_weights=True cannot train on inputs of three dimensions.

It is the layer's default, which keeps the weight and quantises it in each forward. Its backward transposes the inputs
by t(). No thread found on 2026-11-24; related: bitsandbytes-foundation/bitsandbytes#1628.
Exit code: 0 a gradient, 1 RuntimeError, 77 this version has no 8 bits on CPUs, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.nn import Linear8bitLt

torch.manual_seed(0)
above = torch.randn(6, 48)


def off(*shape):
    """The difference of the weight's gradient from a matrix product, relative; the rows are the same for any shape."""
    layer = Linear8bitLt(64, 48, bias=False, has_fp16_weights=True).to("cpu")
    inputs = torch.randn(6, 64, generator=torch.Generator().manual_seed(1))
    layer(inputs.reshape(*shape, 64)).backward(above.reshape(*shape, 48))
    expected = above.T @ inputs
    return float((layer.weight.grad - expected).norm() / expected.norm())


try:
    rows = off(6)
except (AssertionError, AttributeError, NotImplementedError, RuntimeError) as error:  # older releases
    print(f"8-bit layers on a CPU: {str(error).splitlines()[0]}", file=sys.stderr)
    sys.exit(77)
try:
    found = "the gradient" if off(2, 3) < 0.02 else "another gradient"
except RuntimeError as error:
    found = f"RuntimeError: {error}"
print(f"backward of 2x3x64 inputs (6x64 inputs: {rows:.2g} off): found {found}, expected the gradient")
sys.exit(3 if rows > 0.02 else 0 if found == "the gradient" else 1 if "t() expects" in found else 3)
