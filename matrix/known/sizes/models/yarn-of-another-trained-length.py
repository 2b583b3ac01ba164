"""The logits of YaRN with the published settings of Yarn-Llama-2-7b-64k, beside those by the frequencies of its paper.

arXiv:2309.00071, with the paper's 32 and 1 rotations over the trained length as bounds.
"""

import math

import torch
from released import SMOLLM_135M, changed_tokens, off, report, smollm, tokens

LENGTH, BASE = 2048, 10000.0
ORIGINAL, FACTOR = 4096, 16.0  # huggingface.co/NousResearch/Yarn-Llama-2-7b-64k, config.json
SIZE = SMOLLM_135M["hidden_size"] // SMOLLM_135M["num_attention_heads"]


def place(rotations):
    """The frequency, counted from the fastest, that turns so often over the trained length."""
    return SIZE * math.log(ORIGINAL / (2 * math.pi * rotations)) / (2 * math.log(BASE))


def frequencies():
    fast, slow = math.floor(place(32)), math.ceil(place(1))
    plain = BASE ** (-torch.arange(0, SIZE, 2) / SIZE)
    stretched = ((torch.arange(SIZE // 2) - fast) / (slow - fast)).clamp(0, 1)
    return plain / FACTOR * stretched + plain * (1 - stretched)


scaling = {"rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": ORIGINAL}
model = smollm(max_position_embeddings=int(ORIGINAL * FACTOR), rope_scaling=scaling)
row = tokens(LENGTH)
with torch.no_grad():
    found = model(row, use_cache=False).logits
    model.model.rotary_emb.inv_freq.copy_(frequencies())
    expected = model(row, use_cache=False).logits
report(f"{LENGTH} tokens", logits_off=off(found, expected), changed_tokens=changed_tokens(found, expected))
