"""The output of SigLIP's second feed-forward layer in 4 bits, on a CPU with AVX-512, beside its weights by blocks.

google/siglip-so400m-patch14-384 has 1,152 outputs and 4,304 inputs. ``rounding`` is the error of NF4 itself.
"""

import bitsandbytes  # noqa: F401 - for its version
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from released import off, report

OUTPUTS, INPUTS, ROWS, BLOCK = 1152, 4304, 729, 64
torch.manual_seed(0)
weight = 0.02 * torch.randn(OUTPUTS, INPUTS)
inputs = torch.nn.functional.gelu(torch.randn(ROWS, INPUTS))
found = dequantize_4bit(*quantize_4bit(weight, quant_type="nf4", blocksize=BLOCK))
blocks = weight.reshape(-1, 16 * BLOCK)  # rows of whole blocks
expected = dequantize_4bit(*quantize_4bit(blocks, quant_type="nf4", blocksize=BLOCK)).reshape(OUTPUTS, INPUTS)
report(
    f"{ROWS} patches, blocks of {BLOCK}",
    weights_off=off(found, expected),
    outputs_off=off(inputs @ found.T, inputs @ expected.T),
    rounding=off(inputs @ expected.T, inputs @ weight.T),
)
