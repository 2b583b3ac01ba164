"""Accelerator(mixed_precision="fp16") and TrainingArguments(fp16=True) compute in float32 on a CPU, and log nothing.

By design: https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py applies fp16 off the CPU.
Exit code: 0 float16, 1 float32, 77 this version refuses, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the behaviour

import torch
from accelerate import Accelerator

try:
    accelerator = Accelerator(mixed_precision="fp16", cpu=True)
except ValueError as error:
    print(f"refused: {str(error).splitlines()[0]}", file=sys.stderr)
    sys.exit(77)
model, seen = torch.nn.Sequential(torch.nn.Linear(8, 8)), []
model[0].register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
with torch.autocast("cpu", dtype=torch.float16):
    model(torch.ones(2, 8))
accelerator.prepare(model)(torch.ones(2, 8))
expected, found = seen
if expected != torch.float16:
    print(f"torch {torch.__version__} has no autocast to float16 on a CPU", file=sys.stderr)
    sys.exit(77)
print(f"dtype of a linear layer's output under mixed_precision=fp16: found {found}, expected {expected}")
sys.exit({torch.float16: 0, torch.float32: 1}.get(found, 3))
