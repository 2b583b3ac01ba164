"""LoRA on a convolution ignores the dilation and the padding mode of the layer until it is merged.

Shows with peft 0.10 to 0.21. Reported in huggingface/peft#3697.
Exit code: 0 as merged, 1 another convolution, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

torch.manual_seed(0)


def error(**more):
    """How far the outputs of an adapted layer are from those of the layer with the summed kernel."""
    layer = torch.nn.Conv2d(3, 4, (1, 2), stride=(1, 2), **more)
    rows = torch.randn(2, 3, 4, 9)
    model = get_peft_model(torch.nn.Sequential(layer), LoraConfig(r=2, target_modules=["0"], init_lora_weights=False))
    adapted = model.eval().base_model.model[0]
    with torch.no_grad():
        found = model(rows)
        a, b = adapted.lora_A["default"].weight, adapted.lora_B["default"].weight
        layer.weight += adapted.scaling["default"] * torch.einsum("or,rihw->oihw", b[:, :, 0, 0], a)
        expected = layer(rows)
    return float((found - expected).norm() / expected.norm())


plain, dilated = error(), error(dilation=(1, 2))
print(f"outputs off those of the summed kernel, with dilation: found {dilated:.2g}, expected {plain:.2g} as without")
sys.exit(3 if plain > 1e-5 else int(dilated > 1e-3))
