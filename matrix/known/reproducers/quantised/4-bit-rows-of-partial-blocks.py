"""On a CPU with AVX-512, dequantize_4bit is wrong if rows are a multiple of 16 weights, but no whole number of blocks.

Blocks go through the whole tensor, but the kernel starts a new one with each row. The second feed-forward layer of
SigLIP, the vision tower of Gemma 3 and PaliGemma, has such rows of 4304. No thread found on 2026-11-23; related:
bitsandbytes-foundation/bitsandbytes#1828.
Exit code: 0 right, 1 wrong values, 77 no AVX-512 or no 4 bits on CPUs, anything else: something else happened.
"""

import os
import pathlib
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit

if "avx512f" not in pathlib.Path("/proc/cpuinfo").read_text():
    print("this CPU has no AVX-512", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)
BLOCK = 64


def off(inputs):
    """The largest error of a weight, over the largest that NF4 allows: half its widest step, of the block's largest."""
    weight = torch.randn(64, inputs)
    found = dequantize_4bit(*quantize_4bit(weight, quant_type="nf4", blocksize=BLOCK))
    blocks = torch.nn.functional.pad(weight.flatten(), (0, -weight.numel() % BLOCK)).reshape(-1, BLOCK)
    largest = blocks.abs().amax(1).repeat_interleave(BLOCK)[: weight.numel()].reshape(weight.shape)
    return float(((found - weight).abs() / (largest * (1 - 0.6961) / 2)).max())


try:
    whole, partial = off(4288), off(4304)  # 67 blocks, and 67.25
except (AssertionError, NotImplementedError) as error:  # older releases quantise on GPUs only
    print(error, file=sys.stderr)
    sys.exit(77)
print(f"errors over the largest allowed: {whole:.2g} with 4288 inputs and {partial:.2g} with 4304, expected at most 1")
sys.exit(3 if whole > 1.001 else partial > 1.001)
