"""The order in which trainers visit rows: permutations, seeds, and the rows of each rank."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.trainers import stock_trainer
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Data order"
ROWS = 11


def order(ctx: Context, **more: Any) -> list[int]:
    """The rows that this rank trains on in two epochs."""
    trainer = stock_trainer.trainer(ctx, ROWS, **more)
    record = stock_trainer.observed(trainer)
    trainer.train()
    return record.order


def every_row(rows: list[int], count: int = ROWS) -> str:
    """The rows that do not occur exactly once, or none."""
    return ", ".join(str(number) for number in range(count) if rows.count(number) != 1) or "none"


@call(GROUP, phase=Phase.FORWARD)
def trainer_shuffles(ctx: Context) -> Iterator[Check]:
    """Each epoch of the Trainer is a new permutation of the rows; the seed alone determines it."""
    found = order(ctx)
    first, second = found[:ROWS], found[ROWS:]
    yield equal("rows that the first epoch has not once", every_row(first), "none")
    yield equal("rows that the second epoch has not once", every_row(second), "none")
    yield equal("epochs in order", int(first == sorted(first)) + int(second == sorted(second)), 0)
    yield equal("epochs with the same order", int(first == second), 0)
    yield equal("order with the same seed", str(order(ctx)), str(found))
    yield equal("another seed with the same order", int(order(ctx, seed=8) == found), 0)


@call(GROUP, phase=Phase.FORWARD)
def trainer_data_seed(ctx: Context) -> Iterator[Check]:
    """data_seed determines the order of the rows, whatever the seed is, as documented.

    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.data_seed
    """
    found = order(ctx, seed=1, data_seed=5)
    yield equal("order with the same data_seed", str(order(ctx, seed=2, data_seed=5)), str(found))
    yield equal("another data_seed with the same order", int(order(ctx, seed=1, data_seed=6) == found), 0)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def trainer_shuffles_two_ranks(ctx: Context) -> Iterator[Check]:
    """In an epoch, two ranks see disjoint rows that together are all, but for one row repeated to fill a batch."""
    found = order(ctx)
    mine = [found[: len(found) // 2], found[len(found) // 2 :]]
    epochs = [
        [number for rank in ranks for number in rank] for ranks in zip(*stock_trainer.gathered(ctx, mine), strict=True)
    ]
    for name, rows in zip(("first", "second"), epochs, strict=True):
        yield equal(f"rows of the {name} epoch", str(sorted(set(rows))), str(list(range(ROWS))))
        yield equal(f"rows repeated in the {name} epoch", len(rows) - ROWS, 1)
    yield equal("epochs with the same order", int(epochs[0] == epochs[1]), 0)


def loaded(ctx: Context, *, device_specific: bool = False, **chosen: Any) -> list[list[int]]:
    """The rows that this rank's loader gives in each epoch of a plain loop with accelerate."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, set_seed

    os.environ.update(front_ends.launched(ctx.place))
    accelerator = Accelerator(cpu=ctx.place.kind == "cpu", dataloader_config=DataLoaderConfiguration(**chosen))
    set_seed(3, device_specific=device_specific)
    loader = accelerator.prepare(torch.utils.data.DataLoader(list(range(ROWS)), batch_size=2, shuffle=True))
    return [[int(number) for batch in loader for number in batch] for _ in range(2)]


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_shuffles(ctx: Context) -> Iterator[Check]:
    """A loader of accelerate gives two ranks disjoint rows in a new order each epoch, filled up with first rows."""
    for epoch in zip(*stock_trainer.gathered(ctx, loaded(ctx)), strict=True):
        rows = [number for rank in epoch for number in rank]
        yield equal("rows of an epoch", str(sorted(set(rows))), str(list(range(ROWS))))
        yield equal("rows repeated in an epoch", len(rows) - ROWS, 1)
    first, second = loaded(ctx)
    yield equal("epochs with the same order", int(first == second), 0)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_uneven(ctx: Context) -> Iterator[Check]:
    """With even_batches=False, accelerate's loader gives each row to one rank, once."""
    for epoch in zip(*stock_trainer.gathered(ctx, loaded(ctx, even_batches=False)), strict=True):
        yield equal("rows that an epoch has not once", every_row([n for rank in epoch for n in rank]), "none")


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_seedable(ctx: Context) -> Iterator[Check]:
    """With use_seedable_sampler=True, the order of the rows depends on the seed and the epoch only."""
    found = loaded(ctx, use_seedable_sampler=True)
    yield equal("order with the same seed", str(loaded(ctx, use_seedable_sampler=True)), str(found))
    yield equal("epochs with the same order", int(found[0] == found[1]), 0)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_seeded_by_rank(ctx: Context) -> Iterator[Check]:
    """With set_seed(device_specific=True), accelerate's loader still gives two ranks disjoint rows."""
    for epoch in zip(*stock_trainer.gathered(ctx, loaded(ctx, device_specific=True)), strict=True):
        yield equal("rows of an epoch", str(sorted({n for rank in epoch for n in rank})), str(list(range(ROWS))))


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_seedable_by_rank(ctx: Context) -> Iterator[Check]:
    """With set_seed(device_specific=True) and a seedable sampler, two ranks still get disjoint rows."""
    found = loaded(ctx, device_specific=True, use_seedable_sampler=True)
    for epoch in zip(*stock_trainer.gathered(ctx, found), strict=True):
        yield equal("rows of an epoch", str(sorted({n for rank in epoch for n in rank})), str(list(range(ROWS))))
