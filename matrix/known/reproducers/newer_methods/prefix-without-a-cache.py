"""Generating behind a prefix with use_cache=False raises RuntimeError at the second token.

Shows with peft 0.17 to 0.21, not with 0.14 or 0.15. No thread found on 2026-11-26.
Exit code: 0 the text of the cached run, 1 raises, 77 transformers refuses peft's prefix with or without a cache,
anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
prefix = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5)
model = peft.get_peft_model(LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes)), prefix).eval()
ids = torch.tensor([[1, 2, 3, 4, 5]])
usual = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
try:
    expected = model.generate(input_ids=ids, use_cache=True, **usual).tolist()
    found = model.generate(input_ids=ids, use_cache=False, **usual).tolist()
except AttributeError as error:
    print(f"this transformers refuses the cache of peft {peft.__version__}: {error}", file=sys.stderr)
    sys.exit(77)
except RuntimeError as error:
    found = str(error)
print(f"tokens without a cache: found {found}, expected {expected}")
sizes_differ = isinstance(found, str) and ("size" in found or "shapes" in found)
sys.exit(0 if found == expected else 1 if sizes_differ else 3)
