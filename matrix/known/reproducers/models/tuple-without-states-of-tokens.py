"""T5ForTokenClassification drops the last hidden states from its tuple.

Shows at least with transformers 4.41 to 4.57, not with 5.23. No thread found on 2026-11-26.
Exit code: 0 right, 1 a part is missing, 77 this transformers has no such class, anything else: something
else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
import transformers

if not hasattr(transformers, "T5ForTokenClassification"):
    sys.exit(77)
SIZES = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
model = transformers.T5ForTokenClassification(transformers.T5Config(**SIZES)).eval()
given = {"input_ids": torch.tensor([[3, 4, 5]]), "output_hidden_states": True, "output_attentions": True}
found, expected = len(model(**given, return_dict=False)), len(model(**given, return_dict=True).to_tuple())
print(f"parts of the tuple: found {found}, expected {expected}")
sys.exit({expected: 0, expected - 1: 1}.get(found, 3))
