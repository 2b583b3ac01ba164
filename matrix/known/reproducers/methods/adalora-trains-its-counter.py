"""AdaLoRA on a bfloat16 base: the number of ranks, a constant, becomes a trained parameter.

Shows with peft 0.21; not with 0.20. No thread found on 2026-11-22; related: huggingface/peft#3614.
Exit code: 0 constant, 1 trained, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import AdaLoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}

trained = {}
for dtype in (torch.float32, torch.bfloat16):
    base = LlamaForCausalLM(LlamaConfig(**SIZES)).to(dtype)
    config = AdaLoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"], total_step=10)
    counters = [each for name, each in get_peft_model(base, config).named_parameters() if "ranknum" in name]
    trained[dtype] = sum(each.requires_grad for each in counters)
full, half = trained.values()
print(f"of 4 counters of ranks, trained: found {half} on bfloat16 and {full} on float32, expected 0 and 0")
sys.exit(3 if full else half > 0)
