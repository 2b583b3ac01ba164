"""The Trainer stops before the last, shorter accumulation of the last epoch.

Shows with transformers 4.41 to 4.49, not with 4.52. Thread: huggingface/transformers#33455.
Exit code: 0 right, 1 a step is missing, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import Trainer, TrainingArguments

BATCHES, ACCUMULATED = 7, 3


class Slope(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, value):
        return {"loss": (self.weight * value).square().mean()}


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=1,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=ACCUMULATED,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
    )
    trainer = Trainer(model=Slope(), args=arguments, train_dataset=[{"value": torch.ones(1)}] * BATCHES)
    trainer.train()
found, expected = trainer.state.global_step, -(-BATCHES // ACCUMULATED)
print(f"steps of {BATCHES} batches, {ACCUMULATED} a step: found {found}, expected {expected}")
sys.exit({expected: 0, BATCHES // ACCUMULATED: 1}.get(found, 3))
