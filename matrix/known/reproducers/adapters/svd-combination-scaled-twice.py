"""add_weighted_adapter with combination_type="svd" multiplies the sum by the adapters' scaling twice.

Shows with peft 0.14 to 0.19; not with 0.21. Thread: huggingface/peft#3111 (fixed in 0.21).
Exit code: 0 right, 1 scaled twice, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

SCALING = 2

torch.manual_seed(0)
config = LoraConfig(target_modules=["0"], r=4, lora_alpha=4 * SCALING, init_lora_weights=False)
model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(16, 16)), config, adapter_name="one")
model.add_adapter("other", config)
model.add_weighted_adapter(["one", "other"], [1.0, 0.0], "copy", combination_type="svd", svd_rank=4)
layer = model.base_model.model[0]
expected = SCALING * layer.lora_B["one"].weight @ layer.lora_A["one"].weight
found = layer.scaling["copy"] * layer.lora_B["copy"].weight @ layer.lora_A["copy"].weight
ratio = float((found * expected).sum() / expected.square().sum())
print(
    f"update of the combination with weights 1 and 0 / update of the first adapter: found {ratio:.3f}, expected 1.000"
)
sys.exit({1.0: 0, float(SCALING): 1}.get(round(ratio, 3), 3))
