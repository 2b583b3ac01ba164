"""Moving an 8-bit layer that is on the CPU to the CPU quantises it once more, and loses its scales.

Shows with bitsandbytes 0.46.0, not with 0.47. No thread found on 2026-11-26.
Exit code: 0 the same outputs, 1 127 times those of a row over its largest weight, 77 no 8-bit layers on CPUs, anything
else: something else happened.
"""

import copy
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import bitsandbytes
import torch

torch.manual_seed(0)
plain = torch.nn.Linear(64, 1, bias=False).half()
layer = bitsandbytes.nn.Linear8bitLt(64, 1, bias=False, has_fp16_weights=False)
layer.load_state_dict(plain.state_dict())
layer = layer.to("cpu")
if layer.weight.dtype != torch.int8:
    print(f"bitsandbytes {bitsandbytes.__version__} has no 8-bit layers on CPUs", file=sys.stderr)
    sys.exit(77)
inputs = torch.ones(1, 64).half()
with torch.no_grad():
    before = float(copy.deepcopy(layer)(inputs))
    found = float(layer.to("cpu")(inputs)) / before
expected = 127 / float(plain.weight.detach().abs().max())
print(f"output after a move, over that before it: found {found:.4g}, expected 1 (127 over the largest: {expected:.4g})")
sys.exit(0 if found == 1 else 1 if abs(found / expected - 1) < 0.02 else 3)
