"""train_loss of a resumed training is the sum of the losses since the checkpoint, divided by all steps.

Shows with transformers 4.39 to 5.17, not with 5.23. No thread found on 2026-11-26.
Exit code: 0 right, 1 the number of steps before the checkpoint divides too, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

ROWS, STOP = 8, 6
torch.set_num_threads(1)


class CountedRows(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"value": torch.tensor([float(row)])}


class Distance(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, value):
        return {"loss": (self.weight * value + 1).square().mean()}


def trainer(folder):
    steps = {"save_steps": STOP, "save_strategy": "steps", "logging_steps": 1, "max_steps": ROWS, "seed": 1}
    arguments = TrainingArguments(
        folder, learning_rate=0.0, per_device_train_batch_size=1, report_to="none", use_cpu=True, **steps
    )
    return Trainer(model=Distance(), args=arguments, train_dataset=CountedRows())


with tempfile.TemporaryDirectory() as folder:
    trainer(folder).train()
    resumed = trainer(folder)
    found = resumed.train(resume_from_checkpoint=f"{folder}/checkpoint-{STOP}").training_loss
    losses = [entry["loss"] for entry in resumed.state.log_history if "loss" in entry][STOP:]
expected, divided = sum(float(each) for each in losses) / (ROWS - STOP), sum(float(each) for each in losses) / ROWS
print(f"train_loss of {ROWS - STOP} steps after {STOP}: found {found:.4f}, expected {expected:.4f}")
near = [abs(found - each) < 1e-3 * each for each in (expected, divided)]
sys.exit(0 if near[0] else 1 if near[1] else 3)
