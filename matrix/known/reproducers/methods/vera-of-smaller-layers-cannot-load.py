"""A VeRA adapter that was saved beside one of larger layers does not load alone: it raises or computes something else.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-23; related: huggingface/peft#1816, huggingface/peft#1900.
Exit code: 0 loads and computes the same, 1 raises or computes something else, 77 this peft has no VeRA or refuses
layers of two shapes, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch

if not hasattr(peft, "VeraConfig"):
    print(f"peft {peft.__version__} has no VeRA", file=sys.stderr)
    sys.exit(77)


def base():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 8))


inputs = torch.ones(3, 16)
model = peft.get_peft_model(base(), peft.VeraConfig(r=4, target_modules=["0"]))
model.add_adapter("small", peft.VeraConfig(r=4, target_modules=["1"], init_weights=False))
model.set_adapter("small")
try:
    wanted = model(inputs)
except RuntimeError as error:
    print(f"peft {peft.__version__} has no VeRA for layers of two shapes: {error}", file=sys.stderr)
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    try:
        again = peft.PeftModel.from_pretrained(base(), f"{folder}/small")
    except RuntimeError as error:
        print(f"loading the smaller adapter: found {str(error).split()[-12:]}, expected a model")
        sys.exit(("size mismatch" not in str(error) and 3) or 1)
off = float((again(inputs) - wanted).abs().max())
print(f"output of the loaded adapter off the saved one's: found {off:.2g}, expected < 1e-6")
sys.exit(0 if off < 1e-6 else 1)
