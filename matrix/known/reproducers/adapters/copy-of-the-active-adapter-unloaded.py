"""merge_and_unload(adapter_names=...) and unload() leave the active adapter's copy of a module in modules_to_save.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#3455.
Exit code: 0 the named copy and the original, 1 the active copy twice, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

ORIGINAL, FIRST, SECOND = 0.0, 1.0, 2.0


def adapted():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    torch.nn.init.constant_(model[1].weight, ORIGINAL)
    config = LoraConfig(target_modules=["0"], r=2, modules_to_save=["1"])
    model = get_peft_model(model, config, adapter_name="first")
    model.add_adapter("second", config)
    copies = model.base_model.model[1].modules_to_save
    for name, value in (("first", FIRST), ("second", SECOND)):
        torch.nn.init.constant_(copies[name].weight, value)
    return model  # the first adapter is active


merged = adapted().merge_and_unload(adapter_names=["second"])[1].weight
plain = adapted().unload()[1].weight
found, expected = [float(weight.mean()) for weight in (merged, plain)], [SECOND, ORIGINAL]
print(f"weights of the module after merging the second adapter, and after unload: found {found}, expected {expected}")
sys.exit(0 if found == expected else 1 if found == [FIRST, FIRST] else 3)
