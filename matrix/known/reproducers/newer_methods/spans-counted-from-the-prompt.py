"""Behind prompt tuning, the positions of an answer are compared with logits that begin with the virtual tokens.

Each position trains the token that is num_virtual_tokens before it. Shows with peft 0.14 and 0.21.
No thread found on 2026-11-26.
Exit code: 0 right, 1 the loss of positions that count the virtual tokens, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import PromptTuningConfig, get_peft_model
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForQuestionAnswering

VIRTUAL, START, END = 3, 4, 6
torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
base = LlamaForQuestionAnswering(LlamaConfig(vocab_size=32, initializer_range=1.0, **sizes))
model = get_peft_model(base, PromptTuningConfig(task_type="QUESTION_ANS", num_virtual_tokens=VIRTUAL)).eval()
ids, (start, end) = torch.arange(1, 9)[None], (torch.tensor([each]) for each in (START, END))
with torch.no_grad():
    output = model(input_ids=ids, attention_mask=torch.ones_like(ids), start_positions=start, end_positions=end)


def loss(first):
    """The mean cross entropy of both positions over the logits from a first one on."""
    logits = (output.start_logits[:, first:], output.end_logits[:, first:])
    return float(sum(cross_entropy(*pair) for pair in zip(logits, (start, end), strict=True)) / 2)


found, expected, shifted = float(output.loss), loss(VIRTUAL), loss(0)
print(f"loss of a span behind a prompt: found {found:.5f}, expected {expected:.5f}; shifted {shifted:.5f}")
sys.exit(0 if abs(found - expected) < 1e-5 else 1 if abs(found - shifted) < 1e-5 else 3)
