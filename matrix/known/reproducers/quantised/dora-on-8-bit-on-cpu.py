"""The second training step of DoRA on an 8-bit base raises AttributeError on a CPU.

Shows with bitsandbytes 0.49 and 0.50; not with 0.47. No thread found on 2026-11-22; related: huggingface/peft#2820.
Exit code: 0 a gradient, 1 AttributeError, 77 this version loads 8 bits on a GPU only, anything else: something else.
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
    LlamaForCausalLM(LlamaConfig(**SIZES)).to(torch.bfloat16).save_pretrained(folder)
    eight_bits = BitsAndBytesConfig(load_in_8bit=True)
    try:
        base = AutoModelForCausalLM.from_pretrained(
            folder, quantization_config=eight_bits, device_map={"": "cpu"}, torch_dtype=torch.bfloat16
        )
    except (ImportError, RuntimeError) as error:
        if torch.cuda.is_available() or not any(word in str(error) for word in ("GPU", "CUDA", "bitsandbytes")):
            raise
        print(f"8-bit loading on a CPU: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(77)
model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], use_dora=True)).train()
ids = torch.arange(16).reshape(2, 8)
try:
    for _ in range(2):
        model(input_ids=ids, labels=ids).loss.backward()
    gradients = [each.grad for name, each in model.named_parameters() if "magnitude" in name]
    found = "gradients" if all(each is not None and each.isfinite().all() for each in gradients) else "no gradients"
except AttributeError as error:
    found = f"AttributeError {error}"
print(f"two training steps: found {found}, expected gradients")
sys.exit({"gradients": 0}.get(found, 1 if "unsqueeze" in found else 3))
