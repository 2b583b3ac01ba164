"""target_modules="all-linear" of LoRA also adapts the layers of a module that modules_to_save trains whole.

The forward of a Llama leaves out the adapters in its MLP; those in both copies of a RoBERTa's classifier freeze it.
Shows with peft 0.14 to 0.15.2; not with 0.16. Thread: huggingface/peft#2481 (fixed in 0.16).
Exit code: 0 right, 1 adapters inside the saved modules, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, RobertaConfig, RobertaForSequenceClassification

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
llama = LlamaForCausalLM(LlamaConfig(**SIZES))
llama = get_peft_model(llama, LoraConfig(target_modules="all-linear", modules_to_save=["mlp"], init_lora_weights=False))
roberta = RobertaForSequenceClassification(RobertaConfig(**SIZES))
roberta = get_peft_model(roberta, LoraConfig(target_modules="all-linear", task_type="SEQ_CLS"))


def adapted(model, module):
    """The number of layers inside a module that have an adapter."""
    return sum(f".{module}." in name and name.endswith("lora_A") for name, _ in model.named_modules())


ids = torch.arange(10)[None]
llama(input_ids=ids, labels=ids).loss.backward()
idle = sum(p.requires_grad and p.grad is None for _, p in llama.named_parameters())
found = adapted(llama, "mlp"), adapted(roberta, "classifier")
print(f"adapted layers in an MLP and a classifier that are saved whole: found {found}, expected (0, 0)")
print(f"trained parameters of the Llama without a gradient: {idle}")
sys.exit(0 if found == (0, 0) and not idle else 1 if found == (3, 4) and idle == 6 else 3)
