"""Switching to an adapter without a copy of a module trains the base model's own module.

Shows at least with peft 0.11 to 0.18, not with 0.21. Thread: huggingface/peft#2936.
Exit code: 0 right, 1 the module is trained, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
with_head, plain = (
    LoraConfig(target_modules=["q_proj"], modules_to_save=modules, task_type="CAUSAL_LM")
    for modules in (["lm_head"], None)
)
model = get_peft_model(LlamaForCausalLM(LlamaConfig(**SIZES)), with_head, adapter_name="first")
model.add_adapter("second", plain)
model.set_adapter("second")
found = [name for name, parameter in model.named_parameters() if parameter.requires_grad and "lora" not in name]
print(f"what trains beside the second adapter: found {found}, expected []")
sys.exit(0 if not found else 1 if ["original" in name for name in found] == [True] else 3)
