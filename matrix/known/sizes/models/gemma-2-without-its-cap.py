"""The logits of Gemma 2 by SDPA, which drops the cap of 50, beside those by eager attention: 1,024 tokens."""

import torch
from released import GEMMA_2_2B_OF_4_LAYERS, changed_tokens, off, report, tokens
from transformers import Gemma2Config, Gemma2ForCausalLM

LENGTH = 1024
row = tokens(LENGTH, GEMMA_2_2B_OF_4_LAYERS["vocab_size"])
config = Gemma2Config(**GEMMA_2_2B_OF_4_LAYERS)
torch.manual_seed(0)
model = Gemma2ForCausalLM._from_config(config, attn_implementation="eager").eval()
with torch.no_grad():
    expected = model(row, use_cache=False).logits
    model.set_attn_implementation("sdpa")
    found = model(row, use_cache=False).logits
report(f"{LENGTH} tokens", logits_off=off(found, expected), changed_tokens=changed_tokens(found, expected))
