"""The logits of 512 tokens with LongRoPE beside those of its short factors.

The trained length is 2,048 and the model's 65,536. The short factors are 1, and the long ones grow from 1 to 32.
"""

import torch
from released import changed_tokens, off, report, smollm, tokens

LENGTH, TRAINED, FACTOR, FREQUENCIES = 512, 2048, 32, 32
SHORT = [1.0] * FREQUENCIES
LONG = [FACTOR ** (place / (FREQUENCIES - 1)) for place in range(FREQUENCIES)]
row = tokens(LENGTH)


def logits(long):
    scaling = {"rope_type": "longrope", "factor": float(FACTOR), "short_factor": SHORT, "long_factor": long}
    scaling["original_max_position_embeddings"] = TRAINED
    with torch.no_grad():
        return smollm(max_position_embeddings=FACTOR * TRAINED, rope_scaling=scaling)(row, use_cache=False).logits


found, expected = logits(LONG), logits(SHORT)
report(f"{LENGTH} tokens", logits_off=off(found, expected), changed_tokens=changed_tokens(found, expected))
