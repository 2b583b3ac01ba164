"""With gradient accumulation, the Trainer adds the losses of batches, if the model takes no loss arguments.

Shows with transformers 4.47, not with 5.23. Thread: huggingface/transformers#37766.
Exit code: 0 their mean, 1 their sum, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import Trainer, TrainingArguments

RATE, ACCUMULATED = 0.125, 4


class Weighed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, value):
        return {"loss": (self.weight * value).mean()}


with tempfile.TemporaryDirectory() as folder:
    arguments = {"max_steps": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": ACCUMULATED}
    arguments |= {"learning_rate": RATE, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 0.0}
    arguments = TrainingArguments(folder, **arguments, use_cpu=True, report_to="none", save_strategy="no")
    model = Weighed()
    Trainer(model=model, args=arguments, train_dataset=[{"value": torch.ones(1)}] * ACCUMULATED).train()
ratio = float(model.weight.detach()) / -RATE
print(f"step of the weight / step by the mean of {ACCUMULATED} batches: found {ratio:.3f}, expected 1.000")
sys.exit({1.0: 0, float(ACCUMULATED): 1}.get(round(ratio, 3), 3))
