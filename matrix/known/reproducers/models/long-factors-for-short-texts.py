"""LongRoPE applies its long factors to short texts too.

Shows with transformers 4.47, not with 4.52. No thread found on 2026-11-26.
Exit code: 0 the short factors, 1 the long ones, 77 this Llama has no LongRoPE, anything else: something else
happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
FACTORS = {"long_factor": [4.0] * 4, "short_factor": [1.0] * 4, "attention_factor": 1.0, "factor": 4.0}


def logits(**chosen):
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES, initializer_range=0.2, max_position_embeddings=128, **chosen)
    return LlamaForCausalLM(config).eval()(torch.arange(3, 19)[None]).logits.detach()


longrope = {"rope_type": "longrope", "original_max_position_embeddings": 32, **FACTORS}
try:
    found = logits(rope_scaling=longrope, original_max_position_embeddings=32)
except (ValueError, KeyError) as error:
    print(f"this transformers has no LongRoPE: {error}", file=sys.stderr)
    sys.exit(77)
expected, scaled = logits(), logits(rope_scaling={"rope_type": "linear", "type": "linear", "factor": 4.0})
off, near = (float((each - found).norm() / found.norm()) for each in (expected, scaled))
print(f"logits of 16 tokens, off those by short factors of 1: found {off:.3f}, expected < 0.001")
sys.exit(0 if off < 1e-3 else 1 if near < 1e-3 else 3)
