"""A VeRA adapter that is loaded does not use the projections of its file, but generates them from the seed.

Shows with peft 0.11 to 0.20; not with 0.21. No thread found on 2026-11-22. PEFT's documentation of save_projection says
that the file makes an adapter independent of the machine. The script changes a projection in the file, as if another
random generator had made it: no configuration does.
Exit code: 0 the file's are used, 1 they are not, 77 this peft has no VeRA, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch
from safetensors.torch import load_file, save_file

if not hasattr(peft, "VeraConfig"):
    print(f"peft {peft.__version__} has no VeRA", file=sys.stderr)
    sys.exit(77)


def base():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8, bias=False))


inputs = torch.randn(3, 8)
with tempfile.TemporaryDirectory() as folder:
    config = peft.VeraConfig(r=4, target_modules=["0"], init_weights=False, save_projection=True)
    peft.get_peft_model(base(), config).save_pretrained(folder)
    file = f"{folder}/adapter_model.safetensors"
    saved = load_file(file)
    name = next(name for name in saved if name.endswith("vera_A"))
    saved[name] = saved[name].flip(0).contiguous()
    save_file(saved, file, metadata={"format": "pt"})
    found = peft.PeftModel.from_pretrained(base(), folder)(inputs)
held = {name.split(".")[-1]: tensor for name, tensor in saved.items()}
update = held["vera_lambda_b"][:, None] * held["vera_B"] @ (held["vera_lambda_d"][:, None] * held["vera_A"])
expected = inputs @ (base()[0].weight + update).T  # arXiv:2310.11454
off = float((found - expected).abs().max())
print(f"output differs from that of the file's tensors: found {off:.2g}, expected < 1e-5")
sys.exit(off > 1e-5)
