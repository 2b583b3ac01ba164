"""On a CPU, dequantize_4bit of a vector of even length returns one row of a matrix.

Shows with bitsandbytes 0.49 and 0.50; not with 0.47. Thread: bitsandbytes-foundation/bitsandbytes#2047 (open).
Exit code: 0 a vector, 1 a matrix, 77 this version has no 4 bits on CPUs, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit


def shape(length):
    return tuple(dequantize_4bit(*quantize_4bit(torch.arange(1.0, length + 1), quant_type="nf4")).shape)


try:
    even, odd = shape(256), shape(129)
except (AssertionError, NotImplementedError) as error:  # older releases quantise on GPUs only
    print(error, file=sys.stderr)
    sys.exit(77)
print(f"dequantised vectors of 256 and 129 numbers: found {even} and {odd}, expected (256,) and (129,)")
sys.exit(3 if odd != (129,) else {(256,): 0, (1, 256): 1}.get(even, 3))
