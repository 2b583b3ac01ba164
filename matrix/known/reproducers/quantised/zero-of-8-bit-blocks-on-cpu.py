"""On a CPU, bitsandbytes' quantize_blockwise turns 0 into 2.1e-5 of the largest magnitude of its block.

Shows with bitsandbytes 0.50, not 0.49. No thread found on 2026-11-23.
Related: bitsandbytes-foundation/bitsandbytes#1901, which added the table.
Exit code: 0 the nearest values of the code, 1 zero is lost, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes import functional

numbers = torch.zeros(64)
numbers[0], numbers[1] = 1.0, 0.5
packed, state = functional.quantize_blockwise(numbers, blocksize=64)
back = functional.dequantize_blockwise(packed, state)
if 0.0 not in state.code.tolist():
    sys.exit(3)
nearest = state.code[(numbers[:, None] - state.code).abs().argmin(1)]
large = float((back - nearest)[:2].abs().max())
found, expected = float(back[2]), float(nearest[2])
print(f"0 beside a largest number of 1, after quantization: found {found:.2g}, expected {expected:.2g}")
sys.exit(3 if large > 1e-6 else 0 if found == expected else 1 if 0 < abs(found) < 1e-4 else 3)
