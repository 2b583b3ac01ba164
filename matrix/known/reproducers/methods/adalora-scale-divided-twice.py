"""set_scale(adapter, 1) and unscale_layer() divide the scale of an AdaLoRA adapter by its rank.

"The initial scale is determined by the configured r (rank) and lora_alpha": AdaLoRA's layers hold lora_alpha and divide
by the rank in the forward, and both methods set lora_alpha / r. No thread found on 2026-11-24; related:
huggingface/peft#2733.
Exit code: 0 the initial scale, 1 that over the rank, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import AdaLoraConfig, get_peft_model

RANK = 4
torch.manual_seed(0)
steps = {"init_r": RANK, "target_r": 2, "tinit": 1, "tfinal": 1, "total_step": 10}
config = AdaLoraConfig(target_modules=["0"], lora_alpha=8, init_lora_weights=False, **steps)
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8)), config).eval()
layer, inputs = model.base_model.model[0], torch.randn(3, 8)


@torch.no_grad()
def update():
    return layer(inputs) - layer.get_base_layer()(inputs)


initial, found = update(), {}
layer.set_scale("default", 1.0)
found["set_scale(adapter, 1)"] = float(update().norm() / initial.norm())
layer.scale_layer(0.5)
layer.unscale_layer()
found["unscale_layer()"] = float(update().norm() / initial.norm())
print(f"share of the initial update: found {found}, expected 1 and 1")
kinds = {1 if abs(share - 1 / RANK) < 1e-3 else 0 if abs(share - 1) < 1e-3 else 3 for share in found.values()}
sys.exit(kinds.pop() if len(kinds) == 1 else 3)
