"""Assisted generation returns states of the prompt's first tokens for candidates that its first pass accepts.

Shows with transformers 4.41 to 5.23; 4.39 raises AttributeError. No thread found on 2026-11-26.
Exit code: 0 right, 1 states of the prompt's tokens, anything else: something else happened.
"""

import copy
import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LENGTH, NEW = 6, 4

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=None, initializer_range=0.2)).eval()
assistant = copy.deepcopy(model)  # whose candidates are all accepted
assistant.generation_config.assistant_confidence_threshold = 0.0  # and as many as there may be
prompt = torch.arange(3, 3 + LENGTH)[None]
found = model.generate(
    prompt,
    attention_mask=torch.ones_like(prompt),
    assistant_model=assistant,
    max_new_tokens=NEW,
    do_sample=False,
    return_dict_in_generate=True,
    output_hidden_states=True,
)
with torch.no_grad():
    states = model(found.sequences[:, :-1], output_hidden_states=True).hidden_states[-1][0]
accepted = torch.stack([step[-1][0, -1] for step in found.hidden_states[1:3]])
off, mistaken = (float((accepted - other).abs().max()) for other in (states[LENGTH : LENGTH + 2], states[:2]))
print(
    f"states of the second and third new token differ from those of a pass over the text by: found {off:.2g}, "
    f"expected < 1e-4; from those of the first two tokens of the prompt by {mistaken:.2g}"
)
sys.exit(0 if off < 1e-4 else 1 if mistaken < 1e-4 else 3)
