"""The Trainer logs the learning rate of the next step beside the loss of a step.

Shows with transformers 4.41 to 4.49, not with 4.52. Thread: huggingface/transformers#35942 (fixed by #36973).
Exit code: 0 right, 1 the rate of the next step, anything else: something else happened.
"""

import os
import sys
import tempfile
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

STEPS, used = 4, []


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, value):
        return {"loss": (self.weight * value).square().mean()}


class Watch(TrainerCallback):
    def on_step_begin(self, args, state, control, optimizer=None, **more):  # noqa: ARG002 - called with these
        used.append(optimizer.param_groups[0]["lr"])


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        max_steps=STEPS,
        learning_rate=0.1,
        lr_scheduler_type="linear",
        logging_steps=1,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
    )
    rows = [{"value": torch.ones(1)}] * STEPS
    trainer = Trainer(model=Line(), args=arguments, train_dataset=rows, callbacks=[Watch()])
    trainer.train()
logged = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
print(f"learning rates of {STEPS} steps: found {logged}, expected {used}")
following = [*used[1:], 0.0]
near = [max(abs(a - b) for a, b in zip(logged, each, strict=True)) < 1e-9 for each in (used, following)]
sys.exit(0 if near[0] else 1 if near[1] else 3)
