"""A model whose active adapter was deleted raises KeyError, although PEFT says that it activates another.

Shows with peft 0.11 to 0.15, not with 0.17. No thread found on 2026-11-26.
Exit code: 0 the other adapter is active, 1 KeyError, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
config = LoraConfig(target_modules=["q_proj"], r=2, task_type="CAUSAL_LM")
model = get_peft_model(LlamaForCausalLM(LlamaConfig(**SIZES)), config, adapter_name="first")
model.add_adapter("second", config)
model.delete_adapter("first")
try:
    model(input_ids=torch.tensor([[1, 2]]))
except KeyError as error:
    print(f"a pass after the active adapter was deleted: found KeyError ({error}), expected the other adapter")
    sys.exit(1)
print(f"a pass after the active adapter was deleted: found {model.active_adapter}, expected second")
sys.exit(0 if model.active_adapter == "second" else 3)
