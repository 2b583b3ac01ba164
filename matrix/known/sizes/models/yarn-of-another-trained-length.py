"""The logits of YaRN with the published settings of Yarn-Llama-2-7b-64k, beside those for its trained length of 4,096.

A configuration with max_position_embeddings=4096 makes releases that misread the trained length compute the right
frequencies; others ignore that value.
"""

import torch
from released import changed_tokens, off, report, smollm, tokens

LENGTH = 2048
ORIGINAL, FACTOR = 4096, 16.0  # huggingface.co/NousResearch/Yarn-Llama-2-7b-64k, config.json
SCALING = {"rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": ORIGINAL}
row = tokens(LENGTH)


def logits(longest):
    with torch.no_grad():
        return smollm(max_position_embeddings=longest, rope_scaling=dict(SCALING))(row, use_cache=False).logits


found, expected = logits(int(ORIGINAL * FACTOR)), logits(ORIGINAL)
report(f"{LENGTH} tokens", logits_off=off(found, expected), changed_tokens=changed_tokens(found, expected))
