"""Merging an OSF adapter that is merged already adds its update once more, and so does merge_and_unload after it.

Shows with peft 0.21, not with 0.18. No thread found on 2026-11-26; huggingface/peft#1355 repaired other methods.
Exit code: 0 right, 1 the update is in twice, 77 this peft has no OSF, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

if not hasattr(peft, "OSFConfig"):
    print(f"peft {peft.__version__} has no OSF", file=sys.stderr)
    sys.exit(77)
torch.manual_seed(0)
layer = torch.nn.Linear(6, 4)
start = layer.weight.detach().clone()
model = peft.get_peft_model(torch.nn.Sequential(layer), peft.OSFConfig(target_modules=["0"], effective_rank=2))
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "S_low" in name:
            parameter.add_(1)
model.merge_adapter()
once = (layer.weight.detach() - start).norm()
found = float((model.merge_and_unload()[0].weight.detach() - start).norm() / once)
print(f"update after merge_adapter and merge_and_unload, in updates: found {found:.3f}, expected 1.000")
sys.exit(0 if abs(found - 1) < 1e-3 else 1 if abs(found - 2) < 1e-3 else 3)
