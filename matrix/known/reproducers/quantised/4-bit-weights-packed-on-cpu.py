"""The first forward in eval mode repacks 4-bit weights on a CPU with AVX512-BF16; dequantize_4bit then returns garbage.

Shows with bitsandbytes 0.49 and 0.50; not with 0.47. No thread found on 2026-11-22; related:
bitsandbytes-foundation/bitsandbytes#2078.
Exit code: 0 right, 1 garbage, 77 this CPU has no AVX512-BF16, anything else: something else happened.
"""

import os
import pathlib
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from bitsandbytes.functional import dequantize_4bit
from bitsandbytes.nn import Linear4bit

if "avx512_bf16" not in pathlib.Path("/proc/cpuinfo").read_text():
    print("this CPU has no AVX512-BF16", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)
weight = torch.randn(64, 64).bfloat16()
layer = Linear4bit(64, 64, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
layer.load_state_dict({"weight": weight.clone()})
layer = layer.to("cpu").eval()
# NF4 (arXiv:2305.14314) rounds by at most half its widest step, 1 - 0.723, of the largest weight of 64; bfloat16 adds.
allowed = float(weight.abs().max()) * ((1 - 0.723) / 2 + 2**-7)


def off():
    found = dequantize_4bit(layer.weight.data, layer.weight.quant_state).float()
    return float((found - weight.float()).abs().max())


before = off()
with torch.no_grad():
    layer(torch.randn(3, 64).bfloat16())
after = off()
print(f"dequantised weights off: found {before:.2g} before and {after:.2g} after a forward, expected <= {allowed:.2g}")
sys.exit(3 if before > allowed else after > allowed)
