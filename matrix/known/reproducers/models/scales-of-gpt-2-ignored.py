"""GPT-2 with scaled-dot-product attention ignores scale_attn_by_inverse_layer_idx and scale_attn_weights.

Shows at least with transformers 4.44 to 4.57, not with 4.41 or 5.23.
Thread: huggingface/transformers#44380 (fixed by #44397).
Exit code: 0 right, 1 ignored, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import AutoModelForCausalLM, GPT2Config

SIZES = {"vocab_size": 64, "n_embd": 32, "n_layer": 3, "n_head": 4, "initializer_range": 0.2}


def logits(implementation, **chosen):
    torch.manual_seed(0)
    config = GPT2Config(**SIZES, **chosen)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    return model(torch.arange(3, 19)[None]).logits.detach()


chosen = {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False}
expected, found, plain = logits("eager", **chosen), logits("sdpa", **chosen), logits("sdpa")
off, same = (float((each - found).norm() / found.norm()) for each in (expected, plain))
print(f"logits of SDPA off those of eager attention: found {off:.3f}, expected < 0.001")
sys.exit(0 if off < 1e-3 else 1 if same < 1e-3 else 3)
