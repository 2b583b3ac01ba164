"""transformers' default_data_collator makes NumPy's whole numbers float32 labels, which a classifier refuses.

Shows with transformers 4.47 to 5.21.1, not with 5.22. No thread found on 2026-11-27; related:
huggingface/transformers#40332.
Exit code: 0 right, 1 float labels and ValueError, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForSequenceClassification, default_data_collator

SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def trained(labels):
    """The dtype of a batch's labels, and the loss of a classifier of three classes, or its error."""
    rows = [{"input_ids": [5, 6, 7], "label": label} for label in labels]
    batch = default_data_collator(rows)
    model = LlamaForSequenceClassification(LlamaConfig(**SIZES, num_labels=3, pad_token_id=0))
    try:
        loss = model(**batch).loss
        return str(batch["labels"].dtype), f"{'no ' if loss.isnan() else 'a '}loss"
    except ValueError as error:
        return str(batch["labels"].dtype), f"ValueError: {str(error)[:60]}"


expected = trained([2, 0])
found = trained(torch.tensor([2, 0]).numpy())
print(f"labels of NumPy and a classifier: found {found}, expected {expected} as of Python's integers")
if expected != ("torch.int64", "a loss"):
    sys.exit(3)
sys.exit(0 if found == expected else 1 if found[0] == "torch.float32" and found[1].startswith("ValueError") else 3)
