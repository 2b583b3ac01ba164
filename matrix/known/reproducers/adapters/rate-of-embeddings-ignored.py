"""create_loraplus_optimizer gives adapters of embeddings other rates than loraplus_lr_embedding.

Shows at least with peft 0.14 to 0.18, not with 0.21. Thread: huggingface/peft#3499 (fixed by #3503).
Exit code: 0 right, 1 the rates of other layers, 77 this peft has no LoRA+, anything else: something else
happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model

try:
    from peft.optimizers import create_loraplus_optimizer
except ImportError:
    sys.exit(77)

RATE, RATIO, OF_EMBEDDINGS = 1e-3, 16, 1e-5
model = get_peft_model(torch.nn.Sequential(torch.nn.Embedding(8, 4)), LoraConfig(target_modules=["0"], r=2))
arguments = {"lr": RATE, "loraplus_lr_ratio": RATIO, "loraplus_lr_embedding": OF_EMBEDDINGS}
groups = create_loraplus_optimizer(model, torch.optim.AdamW, **arguments).param_groups
found = sorted({group["lr"] for group in groups if group["params"]})
print(f"learning rates of an adapted embedding: found {found}, expected {[OF_EMBEDDINGS]}")
sys.exit(0 if found == [OF_EMBEDDINGS] else 1 if {*found} <= {RATE, RATE * RATIO} else 3)
