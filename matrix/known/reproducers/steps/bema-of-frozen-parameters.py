"""TRL's BEMACallback raises in the first update if the model has a frozen parameter.

It pairs its list of trained parameters with all parameters of its copy. Shows with trl 1.16; not with 0.12, which has
no such callback. Reported as huggingface/trl#7043.
Exit code: 0 trains, 1 raises, 77 no BEMACallback, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

try:
    from trl import BEMACallback
except ImportError:
    print("this trl has no BEMACallback", file=sys.stderr)
    sys.exit(77)

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


def steps(freeze):
    """The steps of a short training, or the message of what it raises."""
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, **SIZES))
    model.get_input_embeddings().weight.requires_grad_(not freeze)
    data = [{"input_ids": torch.arange(4), "labels": torch.arange(4)} for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(folder, use_cpu=True, report_to=[], save_strategy="no", max_steps=2)
        trainer = Trainer(model, settings, train_dataset=data, callbacks=[BEMACallback(update_freq=1)])
        try:
            trainer.train()
        except (RuntimeError, ValueError) as error:
            return str(error)
    return trainer.state.global_step


expected, found = steps(freeze=False), steps(freeze=True)
print(f"steps with BEMACallback and frozen embeddings: found {found!r}, expected {expected} as without freezing")
if expected != 2:
    sys.exit(3)
sys.exit(0 if found == expected else 1 if "size of tensor" in str(found) or "zip()" in str(found) else 3)
