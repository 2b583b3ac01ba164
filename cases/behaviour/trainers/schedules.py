"""Learning-rate schedules by their formulas: the value that the optimiser uses in each step, and the logged one.

https://huggingface.co/docs/transformers/main_classes/optimizer_schedules.
"""

from __future__ import annotations

import inspect
import os
from math import ceil, cos, pi, sqrt
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour.trainers import stock_trainer
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

GROUP = "Learning-rate schedules"
RATE, WARMUP, ROWS, EPOCHS = 0.05, 3, 11, 2
STEPS = 12  # two epochs of six batches of two rows; the last batch of an epoch has one
SAME = 1e-9  # Python's own floats


def warmed(decay: Callable[[float], float], steps: int = STEPS, warmup: int = WARMUP) -> list[float]:
    """The factors of the learning rate: a line up to 1, then a function of the part of the remaining steps taken."""
    return [step / warmup if step < warmup else decay((step - warmup) / (steps - warmup)) for step in range(steps)]


def line(progress: float) -> float:
    return 1 - progress


def cosine(progress: float) -> float:
    """https://arxiv.org/abs/1608.03983, equation 5, for one run."""
    return (1 + cos(pi * progress)) / 2


def follows(ctx: Context, factors: list[float], kind: str, **more: Any) -> Iterator[Check]:
    """Train with a schedule, and compare the learning rates of all steps."""
    given = {"warmup_steps": WARMUP, "num_train_epochs": EPOCHS, **more}
    trainer = stock_trainer.trainer(ctx, ROWS, lr_scheduler_type=kind, learning_rate=RATE, **given)
    record = stock_trainer.observed(trainer)
    trainer.train()
    expected = [RATE * factor for factor in factors]
    logged = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    yield equal("parameter groups at the same rate", str({len(set(rates)) for rates in record.rates}), "{1}")
    yield at_most("learning rate used, off", largest_error([rates[0] for rates in record.rates], expected), SAME)
    yield at_most("learning rate logged, off", largest_error(logged, expected), SAME)


def largest_error(found: list[float], expected: list[float]) -> float:
    if len(found) != len(expected):
        return float("inf")
    return max(abs(one - other) for one, other in zip(found, expected, strict=True)) / RATE


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_linear(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="linear" rises to the learning rate in warmup_steps and falls to 0 after the last step."""
    yield from follows(ctx, warmed(line), "linear")


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_cosine(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="cosine" falls along half a cosine."""
    yield from follows(ctx, warmed(cosine), "cosine")


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_cosine_with_restarts(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="cosine_with_restarts" with num_cycles=2 starts its cosine twice."""
    factors = warmed(lambda progress: cosine(2 * progress % 1))
    yield from follows(ctx, factors, "cosine_with_restarts", lr_scheduler_kwargs={"num_cycles": 2})


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_polynomial(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="polynomial" with power=2 falls to lr_end."""
    end = 0.01
    factors = warmed(lambda progress: end / RATE + (1 - end / RATE) * (1 - progress) ** 2)
    yield from follows(ctx, factors, "polynomial", lr_scheduler_kwargs={"power": 2.0, "lr_end": end})


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_constant_with_warmup(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="constant_with_warmup" stays at the learning rate after warmup_steps."""
    yield from follows(ctx, warmed(lambda _: 1.0), "constant_with_warmup")


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_inverse_sqrt(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="inverse_sqrt" falls with the root of the steps, in units of warmup_steps."""
    factors = warmed(lambda progress: sqrt(WARMUP / (progress * (STEPS - WARMUP) + WARMUP)))
    yield from follows(ctx, factors, "inverse_sqrt")


@call(GROUP, phase=Phase.OPTIMIZER, requires=("schedule_cosine_min",))
def schedule_cosine_with_min_lr(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="cosine_with_min_lr" falls along half a cosine to min_lr_rate of the learning rate."""
    factors = warmed(lambda progress: 0.1 + 0.9 * cosine(progress))
    yield from follows(ctx, factors, "cosine_with_min_lr", lr_scheduler_kwargs={"min_lr_rate": 0.1})


@call(GROUP, phase=Phase.OPTIMIZER, requires=("schedule_stable",))
def schedule_warmup_stable_decay(ctx: Context) -> Iterator[Check]:
    """lr_scheduler_type="warmup_stable_decay" stays for num_stable_steps and falls in num_decay_steps.

    Versions with ``warmup_type`` document a warm-up "from min_lr_ratio times the initial learning rate".
    """
    from transformers import get_wsd_schedule

    stable, decay, least = 4, 5, 0.2
    start = least if "warmup_type" in inspect.signature(get_wsd_schedule).parameters else 0.0
    factors = [start + (1 - start) * step / WARMUP for step in range(WARMUP)] + [1.0] * stable
    factors += [least + (1 - least) * cosine(step / decay) for step in range(decay)]
    chosen = {"num_stable_steps": stable, "num_decay_steps": decay, "min_lr_ratio": least}
    yield from follows(ctx, factors, "warmup_stable_decay", lr_scheduler_kwargs=chosen)


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_warmup_ratio(ctx: Context) -> Iterator[Check]:
    """A ratio of warm-up steps counts all steps of training, rounded up."""
    ratio = {"warmup_ratio": 0.3, "warmup_steps": 0} if stock_trainer.known("warmup_ratio") else {"warmup_steps": 0.3}
    yield from follows(ctx, warmed(line, warmup=ceil(0.3 * STEPS)), "linear", **ratio)


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_accumulated(ctx: Context) -> Iterator[Check]:
    """With gradient accumulation, the schedule counts optimiser steps, and each epoch ends with a step."""
    yield from follows(ctx, warmed(cosine, steps=4, warmup=1), "cosine", gradient_accumulation_steps=4, warmup_steps=1)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def schedule_two_ranks(ctx: Context) -> Iterator[Check]:
    """With two processes, the Trainer's schedule counts optimiser steps, not the steps of both processes."""
    yield from follows(ctx, warmed(cosine, steps=6, warmup=2), "cosine", warmup_steps=2)


def accelerated(ctx: Context, batches: int, accumulation: int = 1, **chosen: Any) -> list[float]:
    """The learning rates of a plain loop with accelerate, in units of the first; the schedule's step n gives 1 / n."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    os.environ.update(front_ends.launched(ctx.place))
    split = {"dataloader_config": DataLoaderConfiguration(split_batches=chosen.pop("split_batches", False))}
    accelerator = Accelerator(cpu=ctx.place.kind == "cpu", gradient_accumulation_steps=accumulation, **split, **chosen)
    model = torch.nn.Linear(1, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    rates: list[float] = []
    optimiser.register_step_pre_hook(lambda used, *_: rates.append(used.param_groups[0]["lr"]))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (step + 1))
    loader = torch.utils.data.DataLoader(torch.ones(batches * 2 * ctx.place.world_size, 1), batch_size=2)
    model, optimiser, loader, schedule = accelerator.prepare(model, optimiser, loader, schedule)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).mean())
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
    return rates


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accelerate_schedule(ctx: Context) -> Iterator[Check]:
    """A schedule that accelerate prepared steps once per process, as documented for one written for one process.

    https://huggingface.co/docs/accelerate/concept_guides/performance#learning-rates
    """
    rates = accelerated(ctx, 4)
    yield at_most(
        "learning rate used, off", stock_trainer.worst(rates, [1 / (2 * step + 1) for step in range(4)]), SAME
    )


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accelerate_schedule_split_batches(ctx: Context) -> Iterator[Check]:
    """With split_batches=True, accelerate steps a schedule once per step of the optimiser."""
    rates = accelerated(ctx, 4, split_batches=True)
    yield at_most("learning rate used, off", stock_trainer.worst(rates, [1 / (step + 1) for step in range(8)]), SAME)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accelerate_schedule_alone(ctx: Context) -> Iterator[Check]:
    """With step_scheduler_with_optimizer=False, accelerate steps a schedule whenever the script does."""
    rates = accelerated(ctx, 4, step_scheduler_with_optimizer=False)
    yield at_most("learning rate used, off", stock_trainer.worst(rates, [1 / (step + 1) for step in range(4)]), SAME)


@call(GROUP, phase=Phase.OPTIMIZER)
def accelerate_schedule_accumulated(ctx: Context) -> Iterator[Check]:
    """With gradient accumulation, accelerate steps a schedule for every batch, as documented.

    "When performing gradient accumulation scheduler lengths should not be changed accordingly, Accelerate will always
    step the scheduler to account for it" (https://huggingface.co/docs/accelerate/package_reference/torch_wrappers).
    """
    rates = accelerated(ctx, 8, accumulation=2)
    yield at_most(
        "learning rate used, off", stock_trainer.worst(rates, [1 / (2 * step + 1) for step in range(4)]), SAME
    )
