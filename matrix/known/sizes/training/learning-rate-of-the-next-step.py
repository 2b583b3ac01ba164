"""The learning rates that the Trainer logs beside those that it uses: 1,000 steps, a cosine, 3 % warm-up, a log per 10.

The schedule does not depend on the model, which is one weight here.
"""

import tempfile

import torch
from released import report
from transformers import Trainer, TrainingArguments

STEPS, PEAK = 1000, 2e-4
used = []


class OneWeight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, inputs):
        return {"loss": (self.weight * inputs).square().mean()}


class RateRecorder(Trainer):
    def compute_loss(self, *arguments, **named):
        used.append(self.optimizer.param_groups[0]["lr"])
        return super().compute_loss(*arguments, **named)


rows = [{"inputs": torch.ones(1)} for _ in range(STEPS)]
with tempfile.TemporaryDirectory() as folder:
    chosen = {"lr_scheduler_type": "cosine", "warmup_steps": 30, "learning_rate": PEAK, "logging_steps": 10}
    arguments = TrainingArguments(
        folder, **chosen, per_device_train_batch_size=1, num_train_epochs=1, report_to="none", use_cpu=True
    )
    trainer = RateRecorder(model=OneWeight(), args=arguments, train_dataset=rows)
    trainer.train()
logged = {each["step"]: each["learning_rate"] for each in trainer.state.log_history if "learning_rate" in each}
off = [abs(rate - used[step - 1]) / PEAK for step, rate in logged.items()]
report(f"{STEPS} steps", most_off_of_peak=max(off), mean_off_of_peak=sum(off) / len(off))
