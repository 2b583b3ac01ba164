"""eval_loss of the Trainer on two ranks, beside the mean over rows whose losses vary by 30 %.

The model returns the loss that each row names, as the size of the error depends on nothing else.
"""

import tempfile

import torch
from released import on_ranks, report
from transformers import Trainer, TrainingArguments

BATCH, VARIES = 8, 0.3


class LossesOfRows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, labels):
        return {"loss": labels.mean() + 0 * self.weight}


def evaluated(count):
    losses = 2.0 * (1 + VARIES * torch.randn(count, generator=torch.Generator().manual_seed(count)))

    def work(rank, folder, results):
        arguments = TrainingArguments(
            tempfile.mkdtemp(dir=folder), per_device_eval_batch_size=BATCH, use_cpu=True, report_to="none"
        )
        rows = [{"labels": loss} for loss in losses]
        found = Trainer(model=LossesOfRows(), args=arguments, eval_dataset=rows).evaluate()["eval_loss"]
        if rank == 0:
            results.put(found)

    return on_ranks(work), float(losses.mean())


for count in (101, 1001):
    found, expected = evaluated(count)
    report(f"{count} rows, batches of {BATCH} on two ranks", found=found, expected=expected, off=found / expected - 1)
