"""Trainer of transformers 5.2 to 5.5.3 with gradient_accumulation_steps=2 trains on half the gradient.

Shows with transformers 5.2.0 to 5.5.3; not with 5.1.0 and not with 5.5.4. No thread found on 2026-11-22.
Exit code: 0 right, 1 half the gradient, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
RATE = 0.1


def tiny_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, use_cache=False))


ids = torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(1))
labels = ids.clone()
labels[:, 0] = -100  # no token predicts it
rows = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]

expected = tiny_model()
logits = expected(input_ids=ids).logits[:, :-1]
torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten()).backward()
expected_step = RATE * expected.lm_head.weight.grad

model, before = tiny_model(), tiny_model()
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        max_steps=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
    )
    Trainer(model=model, args=arguments, train_dataset=rows).train()
step = (before.lm_head.weight - model.lm_head.weight).detach()
ratio = float(step.norm() / expected_step.norm())
print(f"step of the weights / step by the mean gradient of both micro-batches: found {ratio:.3f}, expected 1.000")
sys.exit({1.0: 0, 0.5: 1}.get(round(ratio, 3), 3))
