"""Trainer with label_smoothing_factor and gradient accumulation averages each micro-batch alone and adds the means.

Shows with transformers 4.47 to 5.12; not with 5.23. Thread: huggingface/transformers#47261 (fixed in 5.15).
Exit code: 0 mean over all tokens, 1 means of micro-batches, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
RATE, SMOOTHING = 0.1, 0.1


def tiny_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False))


ids = torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(1))
labels = ids.masked_fill(torch.arange(8) < torch.tensor([[1], [5]]), -100)  # 7 and 3 tokens are learned
rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]


def step(*numbers):
    model = tiny_model()
    logits, wanted = model(input_ids=ids[[*numbers]]).logits[:, :-1], labels[[*numbers], 1:]
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=SMOOTHING).backward()
    return RATE * model.lm_head.weight.grad


model, before = tiny_model(), tiny_model()
with tempfile.TemporaryDirectory() as folder:
    arguments = {"output_dir": folder, "max_steps": 1, "per_device_train_batch_size": 1, "learning_rate": RATE}
    arguments |= {"lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.0, "use_cpu": True}
    arguments |= {"report_to": "none", "save_strategy": "no", "gradient_accumulation_steps": 2}
    arguments = TrainingArguments(**arguments, label_smoothing_factor=SMOOTHING)
    Trainer(model=model, args=arguments, train_dataset=rows).train()
found = (before.lm_head.weight - model.lm_head.weight).detach()
off = {"all": step(0, 1), "sum": step(0) + step(1), "mean": (step(0) + step(1)) / 2}
off = {name: float((found - each).norm() / each.norm()) for name, each in off.items()}
print(f"step of the weights, off the step by the mean over all tokens: found {off['all']:.3f}, expected < 0.001")
sys.exit(0 if off["all"] < 1e-3 else 1 if min(off.values()) < 1e-3 else 3)
