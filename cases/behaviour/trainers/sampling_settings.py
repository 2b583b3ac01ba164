"""How the Trainer's settings choose and deal rows: sampling strategies, columns, and settings of loaders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.trainers import stock_trainer
from cases.behaviour.trainers.optimisers import sgd
from cases.behaviour.trainers.stock_trainer import LENGTHS
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Data order"
ROWS = 11
FIRST, FITTING, STEPS, RATE = 8, 2, 6, 0.05  # batch sizes at first and at last; steps of an epoch


def taken(ctx: Context, count: int, **more: Any) -> stock_trainer.Steps:
    """The rows of each batch of each step of this rank in one epoch."""
    trainer = stock_trainer.trainer(ctx, count, **{"num_train_epochs": 1, **more})
    record = stock_trainer.observed(trainer)
    trainer.train()
    return record.steps


def flat(steps: stock_trainer.Steps) -> list[int]:
    return [number for step in steps for batch in step for number in batch]


def epoch_of(ctx: Context, steps: stock_trainer.Steps) -> list[int]:
    """The rows of all ranks, sorted. Collective."""
    return sorted(number for each in stock_trainer.gathered(ctx, flat(steps)) for number in each)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("sampling_strategy",))
def trainer_sampling_strategies(ctx: Context) -> Iterator[Check]:
    """Each train_sampling_strategy gives two ranks every row once in an epoch, and shuffles or does not.

    "sequential" deals batches in the order of the rows; "group_by_length" and "batch_rebalance" bring similar lengths
    together, or balance ranks.
    """
    count = 16
    for strategy in ("random", "sequential", "group_by_length", "batch_rebalance"):
        if strategy not in strategies():
            continue
        steps = taken(ctx, count, train_sampling_strategy=strategy)
        yield equal(f"rows of an epoch, {strategy}", str(epoch_of(ctx, steps)), str([*range(count)]))
        sizes = {len(batch) for step in steps for batch in step}
        if strategy != "batch_rebalance":  # which deals by length, not by number
            yield equal(f"rows of a batch, {strategy}", str(sizes), "{2}")
        yield equal(f"steps, {strategy}", str(stock_trainer.gathered(ctx, len(steps))), str([4, 4]))
        in_order = [[*range(begin, begin + 2)] for begin in range(2 * ctx.place.rank, count, 4)]
        is_ordered = [batch for step in steps for batch in step] == in_order
        yield equal(f"batches in order, {strategy}", is_ordered, strategy == "sequential")


def strategies() -> str:
    """The documentation of the strategies that this version has."""
    from transformers import TrainingArguments

    fields = TrainingArguments.__dataclass_fields__
    return str(fields["train_sampling_strategy"].metadata) + (TrainingArguments.__doc__ or "")


@call(GROUP, phase=Phase.FORWARD, requires=("sampling_strategy",))
def trainer_rebalanced_batches(ctx: Context) -> Iterator[Check]:
    """With accumulation and an incomplete last step, batch_rebalance still gives every row once, or drops the rest."""
    for drop, wanted in ((False, ROWS), (True, 8)):
        more: dict[str, Any] = {"train_sampling_strategy": "batch_rebalance", "gradient_accumulation_steps": 2}
        steps = taken(ctx, ROWS, dataloader_drop_last=drop, **more)
        found = flat(steps)
        yield equal(f"different rows, drop_last={drop}", len(set(found)), wanted)
        yield equal(f"rows, drop_last={drop}", len(found), wanted)


@call(GROUP, phase=Phase.FORWARD)
def trainer_length_column(ctx: Context) -> Iterator[Check]:
    """Grouping takes lengths from length_column_name if the data set has it, else from the rows themselves.

    The column says that even rows are long, which they are not. Rows are sorted within random parts of 16, so each part
    has at most one batch of both parities.
    """
    from datasets import Dataset
    from transformers import Trainer

    count = 66
    rows = [{name: tensor.tolist() for name, tensor in each.items()} for each in stock_trainer.rows(count)]
    grouped = (
        {"train_sampling_strategy": "group_by_length"}
        if stock_trainer.known("train_sampling_strategy")
        else {"group_by_length": True}
    )
    os.environ.update(front_ends.launched(ctx.place))
    for column in ("extent", None):
        named = {} if column is None else {"length_column_name": column}
        data = Dataset.from_list([{**row, "extent": 100 - 50 * (n % 2) + n % 3} for n, row in enumerate(rows)])
        trainer = Trainer(
            model=stock_trainer.model(ctx),
            args=stock_trainer.arguments(ctx, num_train_epochs=1, **grouped, **named),
            train_dataset=data if column else data.remove_columns("extent"),
            data_collator=tensors,
        )
        batches = [stock_trainer.numbers(batch["input_ids"]) for batch in trainer.get_train_dataloader()]
        name = column or "lengths"
        yield equal(f"rows, {name}", str(sorted(n for batch in batches for n in batch)), str([*range(count)]))
        if column:
            mixed = sum(len({n % 2 for n in batch}) > 1 for batch in batches)
            yield at_most(f"batches of both parities, {name}", mixed, -(-count // 16))
        else:
            apart = [abs(LENGTHS[batch[0] % ROWS] - LENGTHS[batch[-1] % ROWS]) for batch in batches]
            yield at_most(f"mean difference of lengths in a batch, {name}", sum(apart) / len(apart), 2.0)


def tensors(features: list[dict[str, Any]]) -> dict[str, Any]:
    """A padded batch of rows of lists."""
    import torch

    return stock_trainer.padded(
        [{name: torch.tensor(each[name]) for name in ("input_ids", "labels")} for each in features]
    )


@call(GROUP, phase=Phase.FORWARD)
def trainer_unused_columns(ctx: Context) -> Iterator[Check]:
    """remove_unused_columns leaves the columns that forward names, and the labels; without it, all columns stay.

    It also removes them from data sets that are no Dataset, before the collator.
    """
    from datasets import Dataset
    from transformers import Trainer

    rows = [
        {**{k: v.tolist() for k, v in each.items()}, "comment": "x", "score": 1.0} for each in stock_trainer.rows(4)
    ]
    os.environ.update(front_ends.launched(ctx.place))
    for kind, data in (("Dataset", Dataset.from_list(rows)), ("list", rows)):
        for chosen in (True, False):
            seen: set[str] = set()

            def collate(features: list[dict[str, Any]], seen: set[str] = seen) -> dict[str, Any]:
                seen |= set(features[0])
                return tensors(features)

            trainer = Trainer(
                model=stock_trainer.model(ctx),
                args=stock_trainer.arguments(ctx, remove_unused_columns=chosen),
                train_dataset=data,
                data_collator=collate,
            )
            next(iter(trainer.get_train_dataloader()))
            wanted = {"input_ids", "labels"} | (set() if chosen else {"comment", "score"})
            yield equal(f"columns, {kind}, {chosen}", ", ".join(sorted(seen)), ", ".join(sorted(wanted)))


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("accelerator_config",))
def trainer_loader_settings(ctx: Context) -> Iterator[Check]:
    """With accelerator_config, the loaders of the Trainer split whole batches, or repeat no rows.

    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.accelerator_config
    """
    settings: dict[str, tuple[dict[str, Any], str, int]] = {  # the sizes of each rank's batches, and rows in all
        "default": ({}, "[[2, 2, 2], [2, 2, 2]]", 12),
        "split_batches": ({"split_batches": True}, "[[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]", 12),
        "even_batches=False": ({"even_batches": False}, "[[2, 2, 2], [2, 2, 1]]", 11),
        "use_seedable_sampler=False": ({"use_seedable_sampler": False}, "[[2, 2, 2], [2, 2, 2]]", 12),
    }
    for name, (chosen, wanted, number) in settings.items():
        trainer = stock_trainer.trainer(ctx, ROWS, accelerator_config=chosen)
        loader = trainer.get_train_dataloader()
        batches = [stock_trainer.numbers(batch["input_ids"].cpu()) for batch in loader]
        sizes = stock_trainer.gathered(ctx, [len(batch) for batch in batches])
        found = sorted(n for rank in stock_trainer.gathered(ctx, batches) for batch in rank for n in batch)
        yield equal(f"sizes of batches by rank, {name}", str(sizes), wanted)
        yield equal(f"different rows, {name}", len(set(found)), ROWS)
        yield equal(f"rows, {name}", len(found), number)


@call(GROUP, phase=Phase.FORWARD)
def trainer_loader_workers(ctx: Context) -> Iterator[Check]:
    """Workers, and persistent ones, give the rows and the order that the main process gives, in each of two epochs."""
    settings: dict[str, dict[str, Any]] = {
        "none": {},
        "one": {"dataloader_num_workers": 1},
        "two": {"dataloader_num_workers": 2, "dataloader_persistent_workers": True, "dataloader_prefetch_factor": 1},
    }
    found = {}
    for name, more in settings.items():
        loader = stock_trainer.trainer(ctx, 7, **more).get_train_dataloader()
        epochs = []
        for epoch in range(2):
            loader.set_epoch(epoch)
            epochs.append([stock_trainer.numbers(batch["input_ids"]) for batch in loader])
        found[name] = epochs
    for name, epochs in found.items():
        yield equal(
            f"rows, workers: {name}",
            str([sorted(n for b in each for n in b) for each in epochs]),
            str([[*range(7)]] * 2),
        )
        yield equal(f"order, workers: {name}", str(epochs), str(found["none"]))


def fits(module: Any, _inputs: Any, named: dict[str, Any]) -> None:
    """Raise what torch raises without memory, for a batch of more rows than FITTING."""
    if module.training and len(named["input_ids"]) > FITTING:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate more than there is")


@call("Trainer: derived settings", phase=Phase.OPTIMIZER)
def trainer_finds_batch_size(ctx: Context) -> Iterator[Check]:
    """With auto_find_batch_size, the Trainer begins again with smaller batches until they fit, and trains every row.

    Without it, the error of the first batch reaches the user. With it, the training is that of the size that fits.
    """
    from transformers import TrainerCallback

    tried: list[int] = []
    steps: list[list[list[int]]] = []

    class BatchObserver(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            steps.append([])

    def note(module: Any, _inputs: Any, named: dict[str, Any]) -> None:
        if module.training:
            tried.append(len(named["input_ids"]))
            if tried[-1] <= FITTING:
                steps[-1].append(stock_trainer.numbers(named["input_ids"]))

    for finding in (True, False):
        chosen: dict[str, Any] = {"per_device_train_batch_size": FIRST, "auto_find_batch_size": finding}
        trainer = stock_trainer.trainer(ctx, ROWS, learning_rate=RATE, **chosen)
        for hook in (note, fits):
            trainer.model.register_forward_pre_hook(hook, with_kwargs=True)
        trainer.add_callback(BatchObserver())
        said = "nothing"
        try:
            trainer.train()
        except RuntimeError as error:
            said = str(error).partition(":")[0]
        if not finding:
            yield equal("error without auto_find_batch_size", said, "DefaultCPUAllocator")
            continue
        yield equal("error with auto_find_batch_size", said, "nothing")
        before = [size for size in tried if size > FITTING]
        yield equal("sizes tried, falling", str(before), str(sorted({*before}, reverse=True)))
        yield equal("first size tried", before[0], FIRST)
        done = [step for step in steps if step]
        yield equal("optimiser steps", len(done), 2 * STEPS)
        yield equal("steps of the trainer", trainer.state.global_step, 2 * STEPS)
        yield equal("size that the trainer states", trainer.state.train_batch_size, FITTING)
        for epoch in range(2):
            found = flat(done[epoch * STEPS : (epoch + 1) * STEPS])
            yield equal(f"rows of epoch {epoch}", str(sorted(found)), str([*range(ROWS)]))
        reference = stock_trainer.Reference(ctx)
        stock_trainer.repeated(reference, done, sgd(0.0), [RATE] * len(done))
        yield at_most("weights off", stock_trainer.weights_off(trainer.model, reference), stock_trainer.SAME)
