"""Random numbers that the workers of a loader draw, as augmentations of rows do.

torch seeds each worker with the sum of a base seed, new in each epoch, and the worker's number:
https://docs.pytorch.org/docs/stable/notes/randomness.html#dataloader
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Workers of loaders"
SOURCES = ("torch", "random", "numpy")
ROWS, WORKERS, EPOCHS = 8, 2, 2


class Draws:
    """Rows of numbers from each source, drawn when a worker reads them."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, _row: int) -> dict[str, list[float]]:
        import numpy as np
        import torch

        return {"labels": [float(torch.rand(())), random.random(), float(np.random.rand())]}  # noqa: NPY002, S311 - the global generators


def together(features: Sequence[dict[str, Any]]) -> dict[str, Any]:
    import torch

    return {"labels": torch.tensor([each["labels"] for each in features], dtype=torch.float64)}


def epochs(loader: Any) -> list[list[tuple[float, ...]]]:
    """The draws of each epoch: one tuple per source."""
    found = []
    for _ in range(EPOCHS):
        rows = [row for batch in loader for row in batch["labels"].tolist()]
        found.append([tuple(row[source] for row in rows) for source in range(len(SOURCES))])
    return found


def repeated(found: Sequence[Sequence[tuple[float, ...]]]) -> Iterator[Check]:
    """Check that no number of a source occurs twice, in whatever epoch and worker."""
    for source, draws in zip(SOURCES, zip(*found, strict=True), strict=True):
        everything = [number for epoch in draws for number in epoch]
        yield equal(f"numbers of {source} drawn twice", len(everything) - len({*everything}), 0)


def trainer_loader(ctx: Context) -> Any:
    trainer = stock_trainer.trainer(ctx, ROWS, dataloader_num_workers=WORKERS, remove_unused_columns=False)
    trainer.train_dataset, trainer.data_collator = Draws(), together
    return trainer.get_train_dataloader()


@call(GROUP, phase=Phase.LOAD)
def worker_randomness(_ctx: Context) -> Iterator[Check]:
    """Workers of torch's DataLoader draw different numbers in torch, random and numpy, and new ones in each epoch."""
    from torch.utils.data import DataLoader

    yield from repeated(epochs(DataLoader(Draws(), 2, num_workers=WORKERS, collate_fn=together)))


@call(GROUP, phase=Phase.LOAD)
def trainer_worker_randomness(ctx: Context) -> Iterator[Check]:
    """dataloader_num_workers of the Trainer: workers draw different numbers, and new ones in each epoch.

    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.dataloader_num_workers
    """
    yield from repeated(epochs(trainer_loader(ctx)))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def trainer_worker_randomness_of_ranks(ctx: Context) -> Iterator[Check]:
    """dataloader_num_workers of the Trainer: the workers of two ranks draw different numbers.

    https://github.com/huggingface/transformers/issues/37932
    """
    everyone = stock_trainer.gathered(ctx, epochs(trainer_loader(ctx)))
    yield from repeated([epoch for rank in everyone for epoch in rank])
