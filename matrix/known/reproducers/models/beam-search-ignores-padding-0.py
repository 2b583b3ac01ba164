"""Beam search fills sequences behind their end with the end token if the padding token has the id 0.

Shows with transformers 4.52 to 5.23; not with 4.47. Thread: huggingface/transformers#47286 (open).
Exit code: 0 padding, 1 the end token, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
PADDING, NEW, PROMPT = 0, 8, 3

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=None, bos_token_id=None, eos_token_id=None)).eval()
ids = torch.randint(1, 64, (4, PROMPT))
chosen = {"num_beams": 2, "max_new_tokens": NEW, "do_sample": False, "attention_mask": torch.ones_like(ids)}
endless = model.generate(ids, pad_token_id=PADDING, **chosen)
behind, ends = [], set(endless[:, PROMPT:-1].flatten().tolist()) - {PADDING}
for end in sorted(ends):
    rows = model.generate(ids, pad_token_id=PADDING, eos_token_id=end, **chosen)[:, PROMPT:].tolist()
    behind += [(token, end) for row in rows if end in row for token in row[row.index(end) + 1 :]]
wrong = [token == end for token, end in behind if token != PADDING]
print(f"tokens behind the end that are not padding: found {len(wrong)} of {len(behind)}, expected 0")
sys.exit(3 if not behind or not all(wrong) else len(wrong) > 0)
