"""The batches that a training leaves out: 10,000 rows in batches of 8, three epochs, accumulation over 16 batches.

The number does not depend on the model, which is one weight here.
"""

import tempfile

import torch
from released import report
from transformers import Trainer, TrainingArguments

ROWS, BATCH, ACCUMULATED, EPOCHS = 10_000, 8, 16, 3
batches = []


class CountingModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs):
        batches.append(len(inputs))
        return {"loss": (self.weight * inputs).square().mean()}


rows = [{"inputs": torch.ones(1)} for _ in range(ROWS)]
with tempfile.TemporaryDirectory() as folder:
    sizes = {"per_device_train_batch_size": BATCH, "gradient_accumulation_steps": ACCUMULATED}
    arguments = TrainingArguments(folder, **sizes, num_train_epochs=EPOCHS, report_to="none", use_cpu=True)
    trainer = Trainer(model=CountingModel(), args=arguments, train_dataset=rows)
    trainer.train()
whole = EPOCHS * ROWS
report(
    f"{whole} rows in {EPOCHS} epochs",
    steps=trainer.state.global_step,
    rows_left_out=whole - sum(batches),
    share_left_out=1 - sum(batches) / whole,
)
