"""The Trainer's state does not name the best step with save_strategy="best".

Shows with transformers 4.52 to 4.57, not with 5.23. Thread: huggingface/transformers#44583.
Exit code: 0 the best step, 1 None, 77 this transformers has no such strategy or state, anything else: something else
happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import Trainer, TrainerState, TrainingArguments, trainer_utils

STRATEGIES = {each.value for each in getattr(trainer_utils, "SaveStrategy", trainer_utils.IntervalStrategy)}
if "best" not in STRATEGIES or not hasattr(TrainerState(), "best_global_step"):
    sys.exit(77)


class Parabola(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, value):
        return {"loss": (self.weight * value).square().mean()}


with tempfile.TemporaryDirectory() as folder:
    rows = [{"value": torch.ones(1)}] * 4
    each_step = {"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 1, "max_steps": 3}
    arguments = {"metric_for_best_model": "loss", "label_names": ["value"], "optim": "sgd", "learning_rate": 0.1}
    arguments = TrainingArguments(folder, **arguments, use_cpu=True, report_to="none", **each_step)
    trainer = Trainer(model=Parabola(), args=arguments, train_dataset=rows, eval_dataset=rows)
    trainer.train()
found = trainer.state.best_global_step
print(f"best step of 3, each of which is better: found {found}, expected 3")
sys.exit({3: 0, None: 1}.get(found, 3))
