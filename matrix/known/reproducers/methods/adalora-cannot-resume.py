"""An AdaLoRA that is loaded to train on has lost its importance of ranks; its final allocation raises KeyError.

Shows with peft 0.10 to 0.21. No thread found on 2026-11-22.
Exit code: 0 the resumed training allocates, 1 KeyError, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from peft import AdaLoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
STEPS, FINAL = 8, 2  # the budget is final after step STEPS - FINAL


def base():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def train(model, steps):
    ids = torch.arange(16).reshape(2, 8)
    optimiser = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
    for step in steps:
        model(input_ids=ids, labels=ids).loss.backward()
        optimiser.step()
        model.base_model.update_and_allocate(step)
        optimiser.zero_grad()


config = AdaLoraConfig(
    task_type="CAUSAL_LM", target_modules=["q_proj"], init_r=4, target_r=2, tinit=1, tfinal=FINAL, total_step=STEPS
)
model = get_peft_model(base(), config)
train(model, range(STEPS - FINAL))
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    train(model, range(STEPS - FINAL, STEPS))  # without an interruption
    resumed = PeftModel.from_pretrained(base(), folder, is_trainable=True)
try:
    train(resumed, range(STEPS - FINAL, STEPS))
except KeyError as error:
    print(f"the final allocation after a resume: found KeyError {error}, expected that of the uninterrupted training")
    sys.exit(1)
print("the final allocation after a resume: found no KeyError, expected none")
