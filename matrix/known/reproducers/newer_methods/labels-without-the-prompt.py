"""Before a token classifier, prompt tuning passes logits of virtual tokens and labels of the others, which raises.

Shows with peft 0.14 and 0.21. No thread found on 2026-11-26; huggingface/peft#1974 is near.
Exit code: 0 right, 1 raises, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import PromptTuningConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForTokenClassification

torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
base = LlamaForTokenClassification(LlamaConfig(vocab_size=32, num_labels=3, **sizes))
model = get_peft_model(base, PromptTuningConfig(task_type="TOKEN_CLS", num_virtual_tokens=3)).eval()
ids, labels = torch.arange(1, 7)[None], torch.tensor([[0, 1, 2, 0, 1, 2]])
with torch.no_grad():
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    expected = round(float(cross_entropy(logits[0, -6:], labels[0])), 4)
    try:
        found = round(float(model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss), 4)
    except ValueError as error:
        found = str(error)
print(f"loss of labelled tokens behind a prompt: found {found!r}, expected {expected}")
sys.exit(0 if found == expected else 1 if "batch_size" in str(found) else 3)
