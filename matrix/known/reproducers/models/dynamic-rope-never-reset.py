"""With dynamic RoPE scaling, a short row stays stretched after a longer one.

Shows with transformers 4.39 to 4.41 and 5.0 to 5.12. Thread: huggingface/transformers#46624 (fixed in 5.13).
Exit code: 0 the logits do not depend on the longer row, 1 they do, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TRAINED = 8
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def logits(*rows):
    """The logits of the last of several rows."""
    torch.manual_seed(0)
    scaling = {"type": "dynamic", "factor": 4.0}
    config = LlamaConfig(**SIZES, max_position_embeddings=TRAINED, initializer_range=0.3, rope_scaling=scaling)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        return [model(row, use_cache=False).logits for row in rows][-1]


short, longer = torch.arange(TRAINED - 3)[None], torch.arange(3 * TRAINED)[None]
off = float((logits(longer, short) - logits(short)).abs().max())
print(f"logits of 5 tokens off after 24 tokens: found {off:.2g}, expected < 1e-4")
sys.exit(off > 1e-4)
