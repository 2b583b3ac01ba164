"""A step of the Trainer with label smoothing and four micro-batches, beside the gradient of the mean over all tokens.

The model is SmolLM-135M of two layers, and the rows have 64, 128, 256 and 512 tokens. ``off_scaled`` is the error that
remains if the step is divided by the number of micro-batches.
"""

import tempfile

import torch
from released import off, report, smollm, tokens
from transformers import Trainer, TrainingArguments

LENGTHS, SMOOTHING, LAYERS = (64, 128, 256, 512), 0.1, 2
rows = tokens(sum(LENGTHS)).split(LENGTHS, 1)
start = smollm(num_hidden_layers=LAYERS, use_cache=False)
for row in rows:
    logits = start(input_ids=row).logits[0, :-1]
    loss = torch.nn.functional.cross_entropy(logits, row[0, 1:], label_smoothing=SMOOTHING, reduction="sum")
    (loss / (sum(LENGTHS) - len(LENGTHS))).backward()
expected = start.lm_head.weight.grad

model = smollm(num_hidden_layers=LAYERS, use_cache=False)
with tempfile.TemporaryDirectory() as folder:
    arguments = {"max_steps": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": len(rows)}
    arguments |= {"lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.0, "learning_rate": 1.0}
    arguments |= {"use_cpu": True, "report_to": "none", "save_strategy": "no", "label_smoothing_factor": SMOOTHING}
    data = [{"input_ids": row[0], "labels": row[0]} for row in rows]
    Trainer(model=model, args=TrainingArguments(folder, **arguments), train_dataset=data).train()
found = (start.lm_head.weight - model.lm_head.weight).detach()
report(
    f"{LAYERS} layers, rows of {LENGTHS} tokens",
    factor=float(found.norm() / expected.norm()),
    off=off(found, expected),
    off_scaled=off(found / len(rows), expected),
)
