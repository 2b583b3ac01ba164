"""MiSS with init_weights="bat" ignores miss_dropout.

Shows with peft 0.17 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#3379.
Exit code: 0 something is dropped, 1 nothing, 77 this peft has no MiSS, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

if not hasattr(peft, "MissConfig"):
    print(f"peft {peft.__version__} has no MiSS", file=sys.stderr)
    sys.exit(77)

torch.manual_seed(0)
inputs = torch.randn(4, 16)


def change(start):
    config = peft.MissConfig(target_modules=["0"], r=4, miss_dropout=0.5, mini_r=4, init_weights=start)
    model = peft.get_peft_model(torch.nn.Sequential(torch.nn.Linear(16, 16)), config)
    for name, parameter in model.named_parameters():
        if "miss_block" in name:
            parameter.data.normal_()
    with torch.no_grad():
        return float((model.train()(inputs) - model.eval()(inputs)).norm())


other, found = change("mini"), change("bat")
print(f"outputs changed by miss_dropout=0.5 in training: found {found:.2g} ({other:.2g} with 'mini'), expected > 0")
sys.exit(3 if other == 0 else found == 0)
