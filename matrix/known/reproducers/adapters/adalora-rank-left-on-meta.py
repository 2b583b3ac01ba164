"""from_pretrained of AdaLoRA with low_cpu_mem_usage=True leaves the number of ranks on the meta device.

Shows with PEFT 0.14 and 0.15, not with 0.21. huggingface/peft#3196 fixes it.
Exit code: 0 nothing on meta, 1 the number of ranks, 77 no such argument, anything else: something else happened.
"""

import inspect
import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import AdaLoraConfig, PeftModel, get_peft_model

if "low_cpu_mem_usage" not in inspect.signature(PeftModel.from_pretrained).parameters:
    print("this version of PEFT has no low_cpu_mem_usage")
    sys.exit(77)
steps = {"init_r": 4, "target_r": 2, "tinit": 1, "tfinal": 1, "total_step": 10}
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8)), AdaLoraConfig(target_modules=["0"], **steps))
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    loaded = PeftModel.from_pretrained(torch.nn.Sequential(torch.nn.Linear(8, 8)), folder, low_cpu_mem_usage=True)
found = [name for name, each in loaded.named_parameters() if each.is_meta]
print(f"parameters on meta: found {found}, expected []")
sys.exit(0 if not found else 1 if found == ["base_model.model.0.ranknum.default"] else 3)
