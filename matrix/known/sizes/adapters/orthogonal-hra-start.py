"""The logits of HRA adapters with apply_GS=True before any training, on all linear layers, beside those of the base."""

import peft
import torch
from released import changed_tokens, off, report, smollm, tokens

LENGTH, RANKS = 512, 8
model, row = smollm(), tokens(LENGTH)
with torch.no_grad():
    expected = model(row, use_cache=False).logits
    adapted = peft.get_peft_model(model, peft.HRAConfig(r=RANKS, apply_GS=True, target_modules="all-linear")).eval()
    found = adapted(row, use_cache=False).logits
report(
    f"{LENGTH} tokens, {RANKS} vectors",
    logits_off=off(found, expected),
    changed_tokens=changed_tokens(found, expected),
)
