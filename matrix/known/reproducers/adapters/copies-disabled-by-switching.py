"""An adapter's copy of a module in modules_to_save stays disabled after a switch to an adapter without it, and back.

Shows with PEFT 0.11 to 0.14, not with 0.15. huggingface/peft#2430 fixes it.
Exit code: 0 the outputs of the copy, 1 those of the original module, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

torch.manual_seed(0)
base = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1, bias=False))
inputs = torch.ones(1, 2)
with torch.no_grad():
    original = float(base(inputs))
    model = get_peft_model(base, LoraConfig(target_modules=["0"]), adapter_name="first")
    model.add_adapter("second", LoraConfig(target_modules=["0"], modules_to_save=["1"]))
    for name, parameter in model.named_parameters():
        if "modules_to_save.second" in name:
            parameter.mul_(3)
    for adapter in ("second", "first", "second"):
        model.set_adapter(adapter)
        found = float(model(inputs))
expected = 3 * original  # the start of LoRA adds nothing
print(f"output of the second adapter after the switches: found {found:.6f}, expected {expected:.6f}")
near = [abs(found - each) < 1e-4 * abs(each) for each in (expected, original)]
sys.exit(0 if near[0] else 1 if near[1] else 3)
