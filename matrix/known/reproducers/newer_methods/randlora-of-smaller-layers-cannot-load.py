"""A RandLoRA or PVeRA adapter that was saved beside one of larger layers does not load alone.

Shows with peft 0.17 to 0.21. No thread found on 2026-11-26; related: huggingface/peft#1816, huggingface/peft#3714.
Exit code: 0 both load, 1 one has another size, 77 this peft has no RandLoRA, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

KINDS = [name for name in ("RandLoraConfig", "PveraConfig") if hasattr(peft, name)]
if not KINDS:
    print(f"peft {peft.__version__} has no RandLoRA", file=sys.stderr)
    sys.exit(77)


def base():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 8))


def reloaded(kind):
    """Save adapters of both layers, and load that of the smaller one into a new base."""
    model = peft.get_peft_model(base(), getattr(peft, kind)(r=2, target_modules=["0"]))
    model.add_adapter("small", getattr(peft, kind)(r=2, target_modules=["1"]))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        try:
            peft.PeftModel.from_pretrained(base(), f"{folder}/small")
        except RuntimeError as error:
            return "size mismatch" if "size mismatch" in str(error) else str(error)
    return "loaded"


found = {kind: reloaded(kind) for kind in KINDS}
print(f"the smaller adapter alone: found {found}, expected all loaded")
outcomes = set(found.values())
sys.exit(0 if outcomes == {"loaded"} else 1 if outcomes <= {"loaded", "size mismatch"} else 3)
