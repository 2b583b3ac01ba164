"""A classifier scores the token before the first padding token, although the text goes on behind it.

Shows at least with transformers 4.41 to 4.47, not with 5.23. Thread: huggingface/transformers#35352 (fixed by #35911).
Exit code: 0 the last token, 1 the one before the padding token, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
torch.manual_seed(0)
model = LlamaForSequenceClassification(LlamaConfig(**SIZES, pad_token_id=0, initializer_range=0.2)).eval()
ids = torch.tensor([[5, 6, 0, 7, 8]])  # the padding token also ends the turns of a chat, for example
with torch.no_grad():
    every = model.score(model.model(input_ids=ids).last_hidden_state)[0]
    found = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
print(f"scores of the text: found {found.tolist()}, expected {every[-1].tolist()}")
near = [bool(torch.allclose(found, every[place], atol=1e-5)) for place in (-1, 1)]
sys.exit(0 if near[0] else 1 if near[1] else 3)
