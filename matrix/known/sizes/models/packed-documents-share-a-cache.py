"""The logits of two documents of 1,024 tokens, packed into one row, with use_cache=True beside those of each alone."""

import torch
from released import changed_tokens, off, report, smollm, tokens

LENGTH = 1024
model = smollm().train()  # transformers looks for packed documents in training
row = tokens(2 * LENGTH)
positions = torch.arange(LENGTH).repeat(2)[None]
with torch.no_grad():
    expected = model(row[:, LENGTH:], use_cache=False).logits
    apart, found = (model(row, position_ids=positions, use_cache=cached).logits[:, LENGTH:] for cached in (False, True))
report(
    f"second of two documents of {LENGTH} tokens",
    logits_off=off(found, expected),
    logits_off_without_cache=off(apart, expected),
    changed_tokens=changed_tokens(found, expected),
)
