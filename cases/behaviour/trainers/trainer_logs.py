"""The numbers that the Trainer logs and returns, against those of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers import accumulating, stock_trainer
from cases.behaviour.trainers.stock_trainer import LENGTHS
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Trainer: logs"
EVERY = 4  # steps: the last two of the ten are in no log
ROUNDED = 6e-5  # some versions log losses with four decimals
SAME = 1e-4  # relative, of gradient norms in float32


def logged(trainer: Any, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry and "loss" in entry]


def means(values: list[float], every: int) -> list[float]:
    """The mean of each group of values, as far as they are complete."""
    return [sum(values[end - every : end]) / every for end in range(every, len(values) + 1, every)]


def largest_error(found: list[float], wanted: list[float]) -> float:
    if len(found) != len(wanted):
        return float("inf")
    return max(abs(one - other) for one, other in zip(found, wanted, strict=True))


def losses_of(ctx: Context, trainer: Any) -> Iterator[Check]:
    """Train ten steps in two epochs of nine or ten rows for each rank, and compare logs and result."""
    is_global = ctx.place.world_size == 1 or getattr(trainer.args, "average_tokens_across_devices", False)
    loss = stock_trainer.mean_over_tokens if is_global else accumulating.mean_of_ranks
    record, _, expected = accumulating.repeated(ctx, trainer, loss)
    steps, every = len(expected.losses), range(EVERY - 1, len(expected.losses), EVERY)
    yield equal("optimiser steps", steps, 10)
    yield at_most("logged loss, off", largest_error(logged(trainer, "loss"), means(expected.losses, EVERY)), ROUNDED)
    yield at_most(
        "logged norm, off",
        stock_trainer.worst(logged(trainer, "grad_norm"), [expected.norms[at] for at in every]),
        SAME,
    )
    epochs = [(at + 1) / (steps / 2) for at in every]
    yield at_most("logged epoch, off", largest_error(logged(trainer, "epoch"), epochs), 0.01)  # may be rounded
    result = [entry["train_loss"] for entry in trainer.state.log_history if "train_loss" in entry]
    yield at_most("train_loss, off", largest_error(result, [sum(expected.losses) / steps]), stock_trainer.SAME)
    yield equal("parameter groups at the same rate", str({rate for rates in record.rates for rate in rates}), "{0.1}")


@call(GROUP, phase=Phase.FORWARD)
def trainer_logged_losses(ctx: Context) -> Iterator[Check]:
    """The logged loss is the mean over logging_steps; grad_norm and epoch are those of the step; train_loss covers all.

    ``train_loss`` includes the steps after the last log.
    """
    more: dict[str, Any] = {"max_grad_norm": 1e9, "logging_steps": EVERY}  # versions without clipping log no norm
    yield from losses_of(ctx, stock_trainer.trainer(ctx, 9, **more))


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def trainer_logged_losses_two_ranks(ctx: Context) -> Iterator[Check]:
    """With two ranks, the logged loss is that of both, not of rank 0."""
    more: dict[str, Any] = {"max_grad_norm": 1e9, "logging_steps": EVERY}
    yield from losses_of(ctx, stock_trainer.trainer(ctx, 18, **more))


@call(GROUP, phase=Phase.FORWARD)
def trainer_logged_losses_accumulated(ctx: Context) -> Iterator[Check]:
    """With accumulation, the logged loss is that of a step, not the sum over its batches."""
    more: dict[str, Any] = {"max_grad_norm": 1e9, "logging_steps": EVERY, "gradient_accumulation_steps": 3}
    yield from losses_of(ctx, stock_trainer.trainer(ctx, 29, **more))


def tokens(steps: stock_trainer.Steps, *, is_padding_counted: bool) -> int:
    """The input tokens of some steps."""
    batches = [[LENGTHS[number % len(LENGTHS)] for number in batch] for step in steps for batch in step]
    return sum(max(each) * len(each) if is_padding_counted else sum(each) for each in batches)


def tokens_seen(ctx: Context, *, count: Any) -> tuple[Any, stock_trainer.Steps]:
    trainer = stock_trainer.trainer(ctx, 11, include_num_input_tokens_seen=count, gradient_accumulation_steps=2)
    record = stock_trainer.observed(trainer)
    trainer.train()
    return trainer, stock_trainer.together(ctx, record.steps)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def trainer_tokens_seen(ctx: Context) -> Iterator[Check]:
    """include_num_input_tokens_seen=True counts the input tokens of all ranks and batches, with padding."""
    trainer, steps = tokens_seen(ctx, count=True)
    yield equal("tokens seen", trainer.state.num_input_tokens_seen, tokens(steps, is_padding_counted=True))
    history = logged(trainer, "num_input_tokens_seen")
    sums = [tokens(steps[: end + 1], is_padding_counted=True) for end in range(len(steps))]
    yield equal("tokens logged", str([int(number) for number in history]), str(sums))


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=("non_padding_tokens",))
def trainer_tokens_without_padding(ctx: Context) -> Iterator[Check]:
    """include_num_input_tokens_seen="non_padding" counts the tokens of the attention mask."""
    trainer, steps = tokens_seen(ctx, count="non_padding")
    yield equal("tokens seen", trainer.state.num_input_tokens_seen, tokens(steps, is_padding_counted=False))
