"""save_pretrained of an adapter leaves out the rows that were added to the embeddings of a base in a local folder.

Shows with peft 0.10 and 0.11; not with 0.12. Thread: huggingface/peft#1668 (fixed in 0.12).
Exit code: 0 saved, 1 left out, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}

with tempfile.TemporaryDirectory() as folder:
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(f"{folder}/base")
    base = AutoModelForCausalLM.from_pretrained(f"{folder}/base")
    base.resize_token_embeddings(66)
    expected = base.get_input_embeddings().weight.detach().clone()
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))
    model.save_pretrained(f"{folder}/adapter")
    saved = load_file(f"{folder}/adapter/adapter_model.safetensors")
rows = [
    tuple(tensor.shape) for name, tensor in saved.items() if "embed_tokens" in name and torch.equal(tensor, expected)
]
print(f"embeddings in the adapter's file: found {rows or 'none'}, expected [(66, 32)]")
sys.exit(rows != [(66, 32)])
