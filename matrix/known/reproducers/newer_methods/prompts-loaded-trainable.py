"""PeftModel.from_pretrained leaves prompts trainable, although is_trainable=False should freeze them.

Shows with peft 0.14 and 0.21 for prompt tuning, prefix tuning, P-tuning, multitask prompts and CPT, not for LoRA.
No thread found on 2026-11-26; huggingface/peft#2765 is near.
Exit code: 0 frozen, 1 a prompt is trainable, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import peft
from transformers import LlamaConfig, LlamaForCausalLM

VIRTUAL = {"num_virtual_tokens": 3}
CONTEXT = {"cpt_token_ids": [3, 5], "cpt_mask": [1, 1], "cpt_tokens_type_mask": [1, 2]}
KINDS = {
    "LoraConfig": {},
    "PromptTuningConfig": VIRTUAL,
    "PrefixTuningConfig": VIRTUAL,
    "PromptEncoderConfig": VIRTUAL,
    "MultitaskPromptTuningConfig": {**VIRTUAL, "num_tasks": 2},
    "CPTConfig": CONTEXT,
}


def base():
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes))


def trainable(kind):
    """The number of trainable tensors of an adapter that is loaded for inference."""
    with tempfile.TemporaryDirectory() as folder:
        peft.get_peft_model(base(), getattr(peft, kind)(task_type="CAUSAL_LM", **KINDS[kind])).save_pretrained(folder)
        loaded = peft.PeftModel.from_pretrained(base(), folder, is_trainable=False)
    return sum(each.requires_grad for each in loaded.parameters())


found = {kind.removesuffix("Config"): trainable(kind) for kind in KINDS}
print(f"trainable tensors after loading with is_trainable=False: found {found}, expected 0 each")
sys.exit(3 if found.pop("Lora") else 1 if any(found.values()) else 0)
