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


def shape(*sizes):
    return tuple(dequantize_4bit(*quantize_4bit(torch.ones(sizes), quant_type="nf4")).shape)


try:
    vector, matrix = shape(256), shape(2, 128)
except (AssertionError, NotImplementedError) as error:  # older releases quantise on GPUs only
    print(error, file=sys.stderr)
    sys.exit(77)
print(f"shape of a dequantised vector of 256 numbers: found {vector}, expected (256,)")
sys.exit(3 if matrix != (2, 128) else {(256,): 0, (1, 256): 1}.get(vector, 3))
