"""PEFT makes LoRA for a layer with float8 weights in float8, in which no optimiser and no product works.

Shows with peft 0.10 to 0.18; not with 0.19 and newer, which follow huggingface/peft#3055.
Exit code: 0 right, 1 float8 adapters, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

model = torch.nn.Sequential(torch.nn.Linear(16, 16))
model[0].weight = torch.nn.Parameter(model[0].weight.detach().to(torch.float8_e4m3fn), requires_grad=False)
adapted = get_peft_model(model, LoraConfig(target_modules=["0"]))
found = {str(each.dtype) for name, each in adapted.named_parameters() if "lora_" in name}
print(f"adapters over a float8 weight: found {' and '.join(sorted(found))}, expected torch.float32")
sys.exit(0 if found == {"torch.float32"} else 1 if found == {"torch.float8_e4m3fn"} else 3)
