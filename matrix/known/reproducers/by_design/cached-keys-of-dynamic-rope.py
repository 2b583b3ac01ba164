"""Generation with dynamic RoPE scaling reuses cached keys that an earlier base rotated, so tokens differ.

By design: https://github.com/huggingface/transformers/pull/27227 says that solutions are too slow.
Shows with transformers 4.39 to 5.23. Thread: huggingface/transformers#25104 (closed, not fixed).
Exit code: 0 the tokens are the same without a cache, 1 they differ, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the behaviour

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def off(**scaling):
    """The largest difference of the logits of each generated token, from a cache and from the whole sequence."""
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES, max_position_embeddings=8, initializer_range=0.3, eos_token_id=None, **scaling)
    model = LlamaForCausalLM(config).eval()
    prompt = torch.arange(12)[None]
    made = model.generate(
        prompt, max_new_tokens=12, do_sample=False, use_cache=True, output_scores=True, return_dict_in_generate=True
    )
    with torch.no_grad():
        whole = [model(made.sequences[:, :end], use_cache=False).logits[:, -1] for end in range(12, 24)]
    return float((torch.stack(made.scores) - torch.stack(whole)).abs().max())


dynamic, linear = (off(rope_scaling={"type": each, "factor": 4.0}) for each in ("dynamic", "linear"))
found = f"{dynamic:.2g} with dynamic and {linear:.2g} with linear scaling"
print(f"logits of generated tokens off: found {found}, expected < 1e-4")
sys.exit(3 if linear > 1e-4 else dynamic > 1e-4)
