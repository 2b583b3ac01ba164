"""inject_adapter_in_model raises for AdaLoRA, whose model does not take the argument low_cpu_mem_usage.

Shows with PEFT 0.13 to 0.16, not before and not with 0.17. huggingface/peft#2637 fixes it.
Exit code: 0 right, 1 AdaLoraModel refuses the argument, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import AdaLoraConfig, inject_adapter_in_model

steps = {"init_r": 4, "target_r": 2, "tinit": 1, "tfinal": 1, "total_step": 10}
config = AdaLoraConfig(target_modules=["0"], **steps)
expected = [f"0.lora_{part}.default" for part in "ABE"]
try:
    model = inject_adapter_in_model(config, torch.nn.Sequential(torch.nn.Linear(8, 8)))
    found = sorted(name for name, each in model.named_parameters() if each.requires_grad)
except TypeError as error:
    found = str(error)
print(f"trained parameters of the model: found {found}, expected {expected}")
sys.exit(0 if found == expected else 1 if "'low_cpu_mem_usage'" in found else 3)
