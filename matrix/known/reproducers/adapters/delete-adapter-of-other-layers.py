"""After delete_adapter of the active adapter, which has a layer of its own, PEFT still calls the deleted one active.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#3512.
The forward of a PeftModelForCausalLM then raises KeyError.
Exit code: 0 the other adapter is active, 1 the deleted one, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
model = get_peft_model(layers, LoraConfig(target_modules=["0", "1"]), adapter_name="first")
model.add_adapter("second", LoraConfig(target_modules=["1"]))
model.delete_adapter("first")
found = model.active_adapter
print(f"active adapter after the deletion of the first: found {found}, expected second")
sys.exit({"second": 0, "first": 1}.get(found if isinstance(found, str) else " ".join(found), 3))
