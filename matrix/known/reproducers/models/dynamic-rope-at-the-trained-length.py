"""With dynamic RoPE scaling, a row of exactly the trained length stays stretched after a longer one.

Shows with transformers 4.45 to 5.23. No thread found on 2026-11-24; related: huggingface/transformers#46624.
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


def model():
    torch.manual_seed(0)
    scaling = {"type": "dynamic", "rope_type": "dynamic", "factor": 4.0}
    return LlamaForCausalLM(
        LlamaConfig(**SIZES, max_position_embeddings=TRAINED, initializer_range=0.3, rope_scaling=scaling)
    ).eval()


def off(length):
    """The difference that a longer row before makes to the logits of a row of this length."""
    row, longer = torch.arange(length)[None], torch.arange(3 * TRAINED)[None]
    fresh, used = model(), model()
    with torch.no_grad():
        used(longer, use_cache=False)
        return float((used(row, use_cache=False).logits - fresh(row, use_cache=False).logits).abs().max())


shorter, same = off(TRAINED - 1), off(TRAINED)
print(f"logits off after a longer row: found {same:.2g} for {TRAINED} tokens and {shorter:.2g} for 7, expected < 1e-4")
sys.exit(3 if shorter > 1e-4 else same > 1e-4)
