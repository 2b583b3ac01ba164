"""Documents packed into one row see each other if the model makes a cache, as it does with use_cache=True.

Shows with transformers 4.56 to 5.23. No thread found on 2026-11-23; related: huggingface/transformers#46634.
Exit code: 0 kept apart, 1 mixed with a cache only, 77 this transformers never keeps them apart, anything else:
something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LENGTHS = (5, 3, 6)

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**SIZES)).train()
documents = torch.randint(0, 64, (sum(LENGTHS),)).split(LENGTHS)
packed = {"input_ids": torch.cat(documents)[None], "position_ids": torch.cat([torch.arange(n) for n in LENGTHS])[None]}
with torch.no_grad():
    expected = torch.cat([model(input_ids=document[None], use_cache=False).logits[0] for document in documents])
    off = {cache: float((model(**packed, use_cache=cache).logits[0] - expected).abs().max()) for cache in (False, True)}
print(
    f"logits differ from those of each document alone: found {off[True]:.2g} with use_cache=True and {off[False]:.2g} "
    "without, expected < 1e-5"
)
if off[False] > 1e-5:
    sys.exit(77)
sys.exit(off[True] > 1e-5)
