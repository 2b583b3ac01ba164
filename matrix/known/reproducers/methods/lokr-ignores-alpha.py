"""LoKr multiplies its update by 1 instead of alpha / r.

Shows with peft 0.10 to 0.12; not with 0.14. Thread: huggingface/peft#2180 (fixed in 0.14).
Exit code: 0 right, 1 the update lacks alpha / r, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoKrConfig, get_peft_model

torch.manual_seed(0)
base = torch.nn.Sequential(torch.nn.Linear(16, 16, bias=False))
weight = base[0].weight.detach().clone()
model = get_peft_model(base, LoKrConfig(r=1, alpha=4, target_modules=["0"], init_weights=False))
held = {name.split(".")[-2]: parameter for name, parameter in model.named_parameters() if "lokr" in name}
second = held["lokr_w2"] if "lokr_w2" in held else held["lokr_w2_a"] @ held["lokr_w2_b"]
update = torch.kron(held["lokr_w1"], second)  # of LyCORIS (arXiv:2309.14859), times alpha / r

inputs = torch.randn(3, 16)
found = model(inputs) - inputs @ weight.T
ratio = float(found.norm() / (inputs @ update.T).norm())
print(f"factor of the update: found {ratio:.3f}, expected alpha / r = 4.000")
sys.exit({4.0: 0, 1.0: 1}.get(round(ratio, 3), 3))
