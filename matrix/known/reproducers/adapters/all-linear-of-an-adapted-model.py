"""A second adapter with target_modules="all-linear" raises ValueError.

Shows with peft 0.11 to 0.14, not with 0.15. Thread: huggingface/peft#2390 (fixed by #2391).
Exit code: 0 right, 1 ValueError, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
EXPECTED = 7  # q, k, v, o, gate, up and down
model = get_peft_model(
    LlamaForCausalLM(LlamaConfig(**SIZES)), LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM")
)
try:
    model.add_adapter("second", LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM"))
except ValueError as error:
    print(f"a second adapter on all linear layers: found ValueError ({error}), expected {EXPECTED} adapted layers")
    sys.exit(1)
found = sum(name.endswith("lora_A.second") for name, _ in model.named_modules())
print(f"layers with the second adapter: found {found}, expected {EXPECTED}")
sys.exit(0 if found == EXPECTED else 3)
