"""On a CPU with AVX512-BF16, a 4-bit layer raises in eval mode if its outputs are not a multiple of 32.

For the inference, bitsandbytes packs weights by 32 rows, and by whole blocks of each row. Shows with bitsandbytes 0.49
and 0.50; not with 0.47. No thread found on 2026-11-24; related: bitsandbytes-foundation/bitsandbytes#1804.
Exit code: 0 right, 1 raises, 77 no AVX512-BF16 or no 4 bits on CPUs, anything else: something else happened.
"""

import os
import pathlib
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.nn import Linear4bit

if "avx512_bf16" not in pathlib.Path("/proc/cpuinfo").read_text():
    print("this CPU has no AVX512-BF16", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)


@torch.no_grad()
def found(outputs, inputs):
    """The largest difference between the outputs of one layer in training and in evaluation, or what it raised."""
    layer = Linear4bit(inputs, outputs, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4").to("cpu")
    given = torch.randn(3, inputs).bfloat16()
    trained = layer.train()(given)
    try:
        off = float((layer.eval()(given) - trained).abs().max() / trained.abs().max())
    except (AssertionError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "the same" if off < 0.02 else f"outputs that differ by {off:.2g}"  # bfloat16, with another order of sums


try:
    whole, few, partial = found(64, 128), found(60, 128), found(64, 96)
except (AssertionError, NotImplementedError) as error:  # older releases quantise on GPUs only
    print(error, file=sys.stderr)
    sys.exit(77)
print(f"evaluation of 64x128, 60x128 and 64x96 weights: found {whole}, {few} and {partial}, expected the same")
raised = few.startswith("AssertionError: N must be") and partial.startswith("RuntimeError: shape")
sys.exit(3 if whole != "the same" else 1 if raised else 0 if few == partial == "the same" else 3)
