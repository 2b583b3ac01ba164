"""The logits of rows of 512 and 2,048 tokens after one of 4,096, beside those without it.

SmolLM-135M with dynamic RoPE of factor 2 and 12 of its layers; its trained length is 2,048.
"""

import torch
from released import changed_tokens, off, report, smollm, tokens

LENGTHS, LONGER = (512, 2048), 4096
model = smollm(num_hidden_layers=12, rope_scaling={"type": "dynamic", "factor": 2.0})
rows = [tokens(length) for length in LENGTHS]
with torch.no_grad():
    expected = [model(row, use_cache=False).logits for row in rows]
    for row, right in zip(rows, expected, strict=True):
        model.model(tokens(LONGER), use_cache=False)
        found = model(row, use_cache=False).logits
        results = {"logits_off": off(found, right), "changed_tokens": changed_tokens(found, right)}
        report(f"{row.shape[1]} tokens after {LONGER}", **results)
