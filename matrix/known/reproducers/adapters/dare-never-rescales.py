"""add_weighted_adapter with combination_type="dare_linear" does not divide the kept values by the density.

Shows with peft 0.14 to 0.18; not with 0.19. Thread: huggingface/peft#3152 (fixed in 0.19).
Exit code: 0 rescaled, 1 not, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

DENSITY = 0.5

torch.manual_seed(0)
config = LoraConfig(target_modules=["0"], r=4, lora_alpha=4, init_lora_weights=False)
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(64, 64)), config, adapter_name="one")
model.add_adapter("other", config)
model.add_weighted_adapter(["one", "other"], [1.0, 0.0], "pruned", combination_type="dare_linear", density=DENSITY)
sides = model.base_model.model[0].lora_A
kept = sides["pruned"].weight != 0
found = float((sides["pruned"].weight / sides["one"].weight)[kept].mean())
print(f"kept values over the original ones: found {found:.3f}, expected {1 / DENSITY:.3f} (arXiv:2311.03099)")
sys.exit({1 / DENSITY: 0, 1.0: 1}.get(round(found, 3), 3))
