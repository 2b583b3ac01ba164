"""generate with exponential_decay_length_penalty ends a text before it has min_new_tokens.

The penalty adds infinity to the end token's score of minus infinity, and argmax takes the NaN for the largest score.
Shows with transformers 4.47 to 5.18, not with 5.19. No thread found on 2026-11-27; related:
huggingface/transformers#25416.
Exit code: 0 right, 1 ends too early, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
FEWEST, START, END = 8, 2, 9

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(**SIZES, pad_token_id=0, eos_token_id=END, initializer_range=0.2)).eval()
prompt = torch.arange(10, 16)[None]
usual = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 12, "min_new_tokens": FEWEST, "do_sample": False}


def generated(**settings):
    """The new tokens before the end token, and if the end token's scores have a NaN."""
    done = model.generate(prompt, **usual, **settings, return_dict_in_generate=True, output_scores=True)
    tokens = done.sequences[0, prompt.shape[1] :].tolist()
    return (tokens.index(END) if END in tokens else len(tokens)), any(s.isnan().any() for s in done.scores)


plain, strange = generated()
found, has_nan = generated(exponential_decay_length_penalty=(START, 1.1))
print(f"new tokens before the end: found {found}, expected {FEWEST} or more; without the penalty {plain}")
print(f"the scores have a NaN: {has_nan}")
if plain < FEWEST or strange:
    sys.exit(3)
sys.exit(0 if found >= FEWEST and not has_nan else 1 if found == START + 1 and has_nan else 3)
