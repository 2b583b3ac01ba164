"""load_adapter of a transformers model ignores the subfolder of adapter_kwargs if the adapter is in a local folder.

Shows with transformers 4.39 to 5.17, not 5.23. No thread found on 2026-11-26; related: huggingface/transformers#26270.
Exit code: 0 loads, 1 no adapter is found, anything else: something else happened.
"""

import os
import pathlib
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
IDS = torch.tensor([[1, 2, 3]])


def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES)).eval()


def logits(loaded):
    return loaded.eval()(IDS).logits.detach()


adapted = get_peft_model(model(), LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
wanted, plain = logits(adapted), model()
with tempfile.TemporaryDirectory() as folder:
    adapted.save_pretrained(pathlib.Path(folder, "inner"))
    expected = float((logits(PeftModel.from_pretrained(model(), folder, subfolder="inner")) - wanted).abs().max())
    try:
        plain.load_adapter(folder, adapter_kwargs={"subfolder": "inner"})
        found = float((logits(plain) - wanted).abs().max())
    except (ValueError, OSError) as error:
        found = str(error).replace(folder, "FOLDER").splitlines()[0]
print(f"logits of an adapter in a folder inside, off: found {found!r}, expected {expected} of PEFT")
sys.exit(3 if expected else 0 if found == 0.0 else 1 if "adapter model file not found in FOLDER" in str(found) else 3)
