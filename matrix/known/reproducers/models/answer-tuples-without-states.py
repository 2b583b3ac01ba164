"""With return_dict=False and without a cache, a model of questions leaves the hidden states out of its tuple.

Shows with transformers 4.39 to 4.57; not with 5.3. No thread found on 2026-11-26.
Exit code: 0 right, 1 the states are missing, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import GPT2Config, GPT2ForQuestionAnswering

SIZES = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16}

torch.manual_seed(0)
model = GPT2ForQuestionAnswering(GPT2Config(**SIZES, use_cache=False)).eval()
ids = torch.arange(5)[None]
with torch.no_grad():
    whole = model(ids, output_hidden_states=True, return_dict=True)
    found = model(ids, output_hidden_states=True, return_dict=False)
expected = [name for name in whole if name != "past_key_values"]
print(f"parts of the tuple: found {len(found)}, expected {len(expected)}: {', '.join(expected)}")
sys.exit(0 if len(found) == len(expected) else 1 if len(found) == len(expected) - 1 else 3)
