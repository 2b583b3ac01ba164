"""convert_model_to_fp8_ao converts the first and the last layer, which its documentation leaves as they are.

Its default filter gets each layer alone and looks there for the first and last one. Shows with accelerate 1.7 to 1.14;
not with 1.15, which follows huggingface/accelerate#4147.
Exit code: 0 right, 1 all layers converted, 77 no torchao, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import importlib.util

if importlib.util.find_spec("torchao") is None:
    print("torchao is not installed", file=sys.stderr)
    sys.exit(77)

import torch
from accelerate.utils.ao import convert_model_to_fp8_ao

model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3)))
convert_model_to_fp8_ao(model)
found = [number for number, layer in enumerate(model) if type(layer).__name__ == "Float8Linear"]
print(f"converted layers of three: found {found}, expected [1]")
sys.exit(0 if found == [1] else 1 if found == [0, 1, 2] else 3)
