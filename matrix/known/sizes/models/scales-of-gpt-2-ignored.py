"""The logits of GPT-2 small with scores divided by the layer's number, by SDPA beside those by eager attention.

stanford-crfm's GPT-2 models have this setting. The other argument, weights, is for scale_attn_weights=False.
"""

import sys

import torch
from released import changed_tokens, off, report, tokens
from transformers import GPT2Config, GPT2LMHeadModel

LENGTH = 1024
SETTINGS = {"layers": {"scale_attn_by_inverse_layer_idx": True}, "weights": {"scale_attn_weights": False}}
chosen = SETTINGS[sys.argv[1]]
row = tokens(LENGTH, GPT2Config().vocab_size)


def logits(attention):
    torch.manual_seed(0)
    model = GPT2LMHeadModel._from_config(GPT2Config(**chosen), attn_implementation=attention).eval()
    with torch.no_grad():
        return model(row, use_cache=False).logits


found, expected = logits("sdpa"), logits("eager")
report(f"{LENGTH} tokens, {chosen}", logits_off=off(found, expected), changed_tokens=changed_tokens(found, expected))
