"""YaRN's frequencies depend on max_position_embeddings instead of original_max_position_embeddings.

Shows with transformers 4.47 and 4.49, not with 4.52. Thread: huggingface/transformers#33783.
Exit code: 0 right, 1 those of max_position_embeddings, 77 this Llama has no YaRN, anything else: something else
happened.
"""

import math
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
WIDTH, TRAINED, FACTOR, BASE = 32, 2048, 4.0, 10000.0
YARN = {"rope_type": "yarn", "type": "yarn", "factor": FACTOR, "original_max_position_embeddings": TRAINED}


def by_definition(length):
    """Section 3.2 of arXiv:2309.00071, with a beta of 32 and 1."""
    plain = BASE ** -(torch.arange(0, WIDTH, 2) / WIDTH)
    bounds = [WIDTH * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(BASE)) for turns in (32, 1)]
    low, high = max(math.floor(bounds[0]), 0), min(math.ceil(bounds[1]), WIDTH - 1)
    ramp = ((torch.arange(WIDTH // 2) - low) / (high - low)).clamp(0, 1)
    return plain / FACTOR * ramp + plain * (1 - ramp)


try:
    model = LlamaForCausalLM(LlamaConfig(**SIZES, max_position_embeddings=int(TRAINED * FACTOR), rope_scaling=YARN))
except ValueError as error:
    print(f"this transformers has no YaRN: {error}", file=sys.stderr)
    sys.exit(77)
found = next(buffer for name, buffer in model.named_buffers() if name.endswith("inv_freq")).double()
off = [float((found / by_definition(length) - 1).abs().max()) for length in (TRAINED, int(TRAINED * FACTOR))]
print(f"frequencies off those of a trained length of {TRAINED}: found {off[0]:.3f}, expected < 0.001")
sys.exit(0 if off[0] < 1e-3 else 1 if off[1] < 1e-3 else 3)
