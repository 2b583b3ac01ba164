"""LoHa of a decomposed convolution kernel trains hada_w1_a and hada_w2_a by gradients of each other's product.

Shows with peft 0.14 to 0.21. No thread found on 2026-11-26; related: huggingface/peft#1021.
Exit code: 0 the gradients of the update, 1 others, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoHaConfig, get_peft_model

torch.manual_seed(0)
image = torch.nn.Conv2d(4, 6, 3)
config = LoHaConfig(r=2, alpha=2, target_modules=["0"], use_effective_conv2d=True)
layer = get_peft_model(torch.nn.Sequential(image), config).base_model.model[0]
names = ("t1", "w1_a", "w1_b", "t2", "w2_a", "w2_b")
held = {name: getattr(layer, f"hada_{name}")["default"] for name in names}
for each in held.values():
    torch.nn.init.normal_(each)
copies = {name: each.detach().clone().requires_grad_() for name, each in held.items()}
update = layer.get_delta_weight("default")
one, two = (torch.einsum("ijkl,jr,ip->prkl", copies[f"t{n}"], copies[f"w{n}_b"], copies[f"w{n}_a"]) for n in (1, 2))
sizes = torch.randn_like(update)
(update * sizes).sum().backward()
(one * two * sizes).sum().backward()


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


off = {name: relative(held[name].grad, copies[name].grad) for name in names}
if relative(update.detach(), (one * two).detach()) > 1e-4 or max(off[name] for name in names if name[-1] != "a") > 1e-4:
    print("the update or its other gradients differ as well", off)
    sys.exit(3)
found = max(off["w1_a"], off["w2_a"])
print(f"gradients of hada_w1_a and hada_w2_a, off those of the update: found {found:.2g}, expected < 1e-4")
sys.exit(found > 1e-4)
