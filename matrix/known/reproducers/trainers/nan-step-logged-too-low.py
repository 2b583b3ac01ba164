"""With logging_nan_inf_filter, a NaN step counts in the logged loss for less than the average of its window.

Shows with transformers 4.39 to 5.23. No thread found on 2026-11-23; related: huggingface/transformers#13758.
Exit code: 0 the average, 1 the sum of the k steps before divided by k + 1, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import Trainer, TrainingArguments

LOSSES = [4.0, 2.0, float("nan")]


class Losses(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, value):
        return {"loss": value.mean() + 0 * self.weight}


class ThreeRows(torch.utils.data.IterableDataset):  # in this order
    def __iter__(self):
        return iter([{"value": torch.tensor(value)} for value in LOSSES])


with tempfile.TemporaryDirectory() as folder:
    arguments = {"max_steps": 3, "logging_steps": 3, "per_device_train_batch_size": 1}  # logging_nan_inf_filter=True
    arguments |= {"use_cpu": True, "report_to": "none", "save_strategy": "no", "remove_unused_columns": False}
    trainer = Trainer(model=Losses(), args=TrainingArguments(folder, **arguments), train_dataset=ThreeRows())
    trainer.train()
found = next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
kept = sum(LOSSES[:2])
expected = (kept + kept / 2) / 3
print(f"logged loss of three steps with the losses {LOSSES}: found {found:.3f}, expected {expected:.3f}")
sys.exit(0 if abs(found - expected) < 1e-3 else 1 if abs(found - (kept + kept / 3) / 3) < 1e-3 else 3)
