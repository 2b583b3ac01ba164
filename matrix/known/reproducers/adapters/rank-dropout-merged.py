"""A LoHa adapter with rank_dropout that is merged in training mode loses rows of its update for good.

Shows at least with peft 0.11 to 0.18, not with 0.21. Thread: huggingface/peft#3586 (fixed by #3589).
Exit code: 0 right, 1 rows are missing, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoHaConfig, get_peft_model

config = LoHaConfig(target_modules=["0"], r=4, alpha=4, rank_dropout=0.5, init_weights=False)
torch.manual_seed(0)
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(32, 32)), config)
before = model.base_model.model[0].base_layer.weight.detach().clone()
update = model.eval().base_model.model[0].get_delta_weight("default").detach()
added = model.train().merge_and_unload()[0].weight.detach() - before
missing = int(((added.abs().amax(1) == 0) & (update.abs().amax(1) > 0)).sum())
print(f"rows of 32 whose update is missing after merging: found {missing}, expected 0")
sys.exit(0 if torch.allclose(added, update, atol=1e-5) else 1 if missing else 3)
