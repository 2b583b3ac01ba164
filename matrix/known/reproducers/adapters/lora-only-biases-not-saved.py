"""save_pretrained of a LoRA adapter with bias="lora_only" leaves out the trained biases.

Shows with peft 0.14 to 0.19; not with 0.21. Thread: huggingface/peft#3306 (fixed in 0.21 by #3490).
Exit code: 0 saved, 1 missing, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

model = get_peft_model(
    torch.nn.Sequential(torch.nn.Linear(4, 4)), LoraConfig(target_modules=["0"], r=2, bias="lora_only")
)
trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    saved = load_file(f"{folder}/adapter_model.safetensors")
found = sum(tensor.numel() for tensor in saved.values())
print(f"numbers in the adapter's file: found {found} ({', '.join(saved)}), expected {trained}")
sys.exit(0 if found == trained else 1 if not any("bias" in name for name in saved) else 3)
