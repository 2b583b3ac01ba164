"""EVA counts the tokens of prompts and padded labels, although use_label_mask is set.

Shows with peft 0.14 to 0.19. Reported in huggingface/peft#3233.
Exit code: 0 the tokens to learn alone, 1 all tokens, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch

try:
    from peft import EvaConfig, LoraConfig, get_peft_model, initialize_lora_eva_weights
except ImportError:
    print("this peft has no EVA")
    sys.exit(77)

torch.manual_seed(0)
RANK, WORDS = 4, 12
base = torch.nn.Sequential(torch.nn.Embedding(WORDS, 8), torch.nn.Linear(8, 8))
config = LoraConfig(r=RANK, target_modules=["1"], init_lora_weights="eva", eva_config=EvaConfig(rho=1.0))
ids = torch.arange(WORDS)[None]
labels = torch.where(ids < WORDS // 2, -100, ids)
batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
model = get_peft_model(base, config)
with torch.no_grad():
    inputs = base[0](ids)[0]
forward = {"forward_fn": lambda model, batch: model(batch["input_ids"]), "show_progress_bar": False}
initialize_lora_eva_weights(model, [batch], **forward)
found = model.base_model.model[1].lora_A["default"].weight.detach()


def off(rows):
    """The distance of the span of A from the principal components of rows."""
    right = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)[2][:RANK]
    return float((found.T @ found - right.T @ right).norm())


learned, every = off(inputs[WORDS // 2 :]), off(inputs)
print(f"components of the tokens to learn, off: found {learned:.2g}, expected below 0.001 (of all tokens: {every:.2g})")
sys.exit(0 if learned < 1e-3 else 1 if every < 1e-3 else 3)
