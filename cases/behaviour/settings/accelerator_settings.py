"""The Trainer's accelerator_config, which sets accelerate's loaders and accumulation: the rows of each rank's batches.

https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.accelerator_config
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import stock_trainer
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context

GROUP = "Trainer: derived settings"
ROWS = 10
SAME = 1e-6  # relative: gradients of two batches are added before or after their mean
# By title: the settings, and the rows of each batch of an evaluation, by rank. A batch has two rows.
KINDS: Mapping[str, tuple[dict[str, Any], tuple[list[list[int]], list[list[int]]]]] = {
    "nothing": ({}, ([[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [0, 1]])),
    "split batches": (
        {"split_batches": True},
        ([[0], [2], [4], [6], [8]], [[1], [3], [5], [7], [9]]),
    ),
    "uneven batches": ({"even_batches": False}, ([[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7]])),
    "batches of rank 0": (
        {"dispatch_batches": True},
        ([[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]),
    ),
}


def batches(ctx: Context, chosen: Any) -> list[list[int]]:
    """The rows of this rank's batches in an evaluation, which shuffles nothing."""
    apart = len(stock_trainer.LENGTHS)  # of rows of one length, as accelerate joins batches of rank 0
    more = {"accelerator_config": chosen} if chosen else {}
    trainer = stock_trainer.trainer(ctx, 2, per_device_eval_batch_size=2, **more)
    loader = trainer.get_eval_dataloader([stock_trainer.row(apart * number) for number in range(ROWS)])
    return [[number // apart for number in stock_trainer.numbers(batch["input_ids"])] for batch in loader]


@call(GROUP, phase=Phase.LOAD, ranks=2)
def trainer_accelerator_loaders(ctx: Context) -> Iterator[Check]:
    """accelerator_config decides whether ranks split batches, fill up the last ones, or get those that rank 0 reads.

    As a dictionary and as a file of JSON.
    """
    for title, (chosen, wanted) in KINDS.items():
        path = ctx.kept / f"{title.replace(' ', '-')}-{ctx.place.rank}.json"
        path.write_text(json.dumps(chosen), encoding="utf-8")
        for kind, given in (("as a dictionary", chosen), ("as a file", str(path) if chosen else {})):
            found = batches(ctx, given)
            yield equal(f"rows of batches, {title}, {kind}", str(found), str(wanted[ctx.place.rank]))


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def trainer_accelerator_accumulation(ctx: Context) -> Iterator[Check]:
    """gradient_accumulation_kwargs sets num_steps, and with sync_each_batch lets DDP reduce after each batch.

    Neither changes the trained weights, compared with gradient_accumulation_steps of the Trainer.
    """
    kinds: dict[str, tuple[dict[str, Any], int]] = {
        "steps of the Trainer": ({"gradient_accumulation_steps": 2}, 2),
        "steps of accelerate": ({"accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 2}}}, 2),
        "each batch": (
            {
                "gradient_accumulation_steps": 2,
                "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": True}},
            },
            4,
        ),
    }
    after: dict[str, Any] = {}
    for title, (chosen, passes) in kinds.items():
        trainer = stock_trainer.trainer(ctx, 16, max_steps=2, **chosen)
        reduced: list[bool] = []
        training = trainer.training_step

        def training_step(model: Any, *given: Any, training: Any = training, told: Any = reduced, **more: Any) -> Any:
            found = training(model, *given, **more)
            told.append(bool(model.require_backward_grad_sync))
            return found

        trainer.training_step = training_step
        trainer.train()
        after[title] = {name: each.detach().clone() for name, each in tiny.named(trainer.model)}
        yield equal(f"batches, {title}", len(reduced), 4)
        yield equal(f"steps, {title}", trainer.state.global_step, 2)
        yield equal(f"batches after which DDP reduces, {title}", sum(reduced), passes)
        off = tolerance.worst_tensor(after[title], after["steps of the Trainer"])
        yield at_most(f"weights off, {title}", off, SAME)
