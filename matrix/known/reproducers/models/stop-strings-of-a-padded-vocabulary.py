"""generate with stop_strings raises IndexError for tokens that the model has and the tokeniser lacks.

Shows with transformers 4.41 and 4.47, not 4.49. Upstream: huggingface/transformers#35244.
Exit code: 0 generates, 1 IndexError, 77 this transformers has no stop_strings, anything else: something else happened.
"""

import json
import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

if not hasattr(GenerationConfig(), "stop_strings"):
    print("this transformers has no stop_strings", file=sys.stderr)
    sys.exit(77)

BEYOND, NEW = 40, 3  # a token of the model alone, and the number of new tokens
SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
VOCABULARY = {"abcdef": 0, **{f"w{n}.": n for n in range(1, 10)}}
WORDS = {"type": "WordLevel", "unk_token": "abcdef", "vocab": VOCABULARY}
model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder, "tokenizer.json")
    file.write_text(json.dumps({"version": "1.0", "model": WORDS, "decoder": {"type": "Fuse"}}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))


def generated(token):
    """The number of new tokens, all of which are ``token``."""
    others = [each for each in range(64) if each != token]
    chosen = {"suppress_tokens": others, "do_sample": False, "max_new_tokens": NEW, "pad_token_id": 0}
    arguments = {"eos_token_id": None, "stop_strings": ["5.w6."], "tokenizer": tokenizer, **chosen}
    return model.generate(torch.tensor([[1, 2]]), **arguments).shape[1] - 2


known = generated(3)
try:
    found = generated(BEYOND)
except IndexError as error:
    found = f"IndexError: {error}"
print(f"new tokens of a model with a padded vocabulary: found {found}, expected {known}")
sys.exit(3 if known != NEW else 0 if found == NEW else 1 if str(found).startswith("IndexError") else 3)
