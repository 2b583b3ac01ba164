"""A model that was loaded from an 8-bit checkpoint, and merged with an adapter, cannot be saved.

Shows with transformers 5.3 to 5.23; not with 4.57. Thread: huggingface/transformers#45743 (open).
Exit code: 0 saved, 1 NotImplementedError, 77 this version loads 8 bits on a GPU only, anything else: something else.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}

with tempfile.TemporaryDirectory() as folder:
    LlamaForCausalLM(LlamaConfig(**SIZES)).to(torch.bfloat16).save_pretrained(f"{folder}/base")
    eight_bits = BitsAndBytesConfig(load_in_8bit=True)
    try:
        base = AutoModelForCausalLM.from_pretrained(
            f"{folder}/base", quantization_config=eight_bits, device_map={"": "cpu"}, torch_dtype=torch.bfloat16
        )
    except (ImportError, RuntimeError) as error:
        if torch.cuda.is_available() or not any(word in str(error) for word in ("GPU", "CUDA", "bitsandbytes")):
            raise
        print(f"8-bit loading on a CPU: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(77)
    base.save_pretrained(f"{folder}/quantised")
    loaded = AutoModelForCausalLM.from_pretrained(f"{folder}/quantised", device_map={"": "cpu"})
    merged = get_peft_model(loaded, LoraConfig(target_modules=["q_proj"], init_lora_weights=False)).merge_and_unload()
    try:
        merged.save_pretrained(f"{folder}/merged")
        found = "a file" if "model.safetensors" in os.listdir(f"{folder}/merged") else "no file"
    except NotImplementedError as error:
        found = f"NotImplementedError {error}".strip()
print(f"save_pretrained of the merged model: found {found}, expected a file")
sys.exit({"a file": 0}.get(found, 1 if "NotImplementedError" in found else 3))
