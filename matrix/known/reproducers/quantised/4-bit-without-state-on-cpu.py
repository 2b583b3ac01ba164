"""On a CPU, dequantize_4bit with absmax and out instead of a state raises NotImplementedError.

Its documentation has both arguments for a call without a state; the CPU has no kernel that writes to out.
No thread found on 2026-11-24; related: bitsandbytes-foundation/bitsandbytes#1602.
Exit code: 0 right, 1 NotImplementedError, 77 no 4 bits on CPUs, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit

torch.manual_seed(0)
weight = torch.randn(6, 256)
try:
    packed, state = quantize_4bit(weight, blocksize=64, quant_type="nf4")
    expected = dequantize_4bit(packed, state)
except (AssertionError, NotImplementedError) as error:  # older releases quantise on GPUs only
    print(error, file=sys.stderr)
    sys.exit(77)
# NF4 (arXiv:2305.14314) rounds by at most half its widest step, 1 - 0.6961, of the largest weight.
right = bool((expected - weight).abs().max() < weight.abs().max() * 0.16)
out = torch.zeros(6, 256)
try:
    dequantize_4bit(packed, absmax=state.absmax, out=out, blocksize=64, quant_type="nf4")
    found = "the weights" if torch.equal(out, expected) else "other numbers"
except NotImplementedError as error:
    found = f"NotImplementedError: {str(error)[:60]}"
print(f"dequantize_4bit with absmax and out: found {found}, expected the weights")
sys.exit(3 if not right else 0 if found == "the weights" else 1 if "dequantize_4bit.out" in found else 3)
