"""Each schedule of transformers by its formula, step by step, with and without each argument that it documents.

https://huggingface.co/docs/transformers/main_classes/optimizer_schedules.
"""

from __future__ import annotations

import inspect
import itertools
import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.trainers.schedules import cosine, line
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Factors = Callable[[int], float]

GROUP = "Learning-rate schedules"
RATE, STEPS, LONGER = 0.4, 20, 26  # a schedule of 20 steps is read beyond its end
WARMUPS = (0, 1, 6)
UP, LEVEL, DOWN, LEAST = 4, 7, 5, 0.2  # steps of a schedule that rises, stays and falls to a least rate
SAME = 1e-9  # Python's own floats


def optimiser() -> Any:
    import torch

    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=RATE)


def rates(schedule: Any, steps: int = LONGER) -> list[float]:
    """The learning rate of each step, in units of the first one that the optimiser had."""
    found = []
    for _ in range(steps):
        found.append(schedule.optimizer.param_groups[0]["lr"] / RATE)
        schedule.optimizer.step()
        schedule.step()
    return found


def off(found: list[float], wanted: Factors) -> float:
    return max(abs(each - wanted(step)) for step, each in enumerate(found))


def warmed(warmup: int, after: Callable[[float], float], start: float = 0.0) -> Factors:
    """A line from ``start`` to 1 in the warm-up, then a function of the part of the remaining steps taken."""

    def factor(step: int) -> float:
        if step < warmup:
            return start + (1 - start) * step / warmup
        return after(min(1.0, (step - warmup) / (STEPS - warmup)))

    return factor


def least(floor: float, shape: Callable[[float], float]) -> Callable[[float], float]:
    return lambda progress: floor + (1 - floor) * shape(progress)


def cases(warmup: int) -> dict[str, tuple[str, dict[str, Any], Factors]]:
    """The schedules that all versions have: a name, its arguments, its factors."""
    end = 0.1
    return {
        "linear": ("linear", {}, warmed(warmup, line)),
        "cosine": ("cosine", {}, warmed(warmup, cosine)),
        "cosine, one and a half": (
            "cosine",
            {"num_cycles": 0.75},
            warmed(warmup, lambda progress: max(0.0, (1 + math.cos(1.5 * math.pi * progress)) / 2)),
        ),
        "restarts": (
            "cosine_with_restarts",
            {"num_cycles": 3},
            warmed(warmup, lambda progress: 0.0 if progress >= 1 else cosine(3 * progress % 1)),
        ),
        "polynomial": (
            "polynomial",
            {"lr_end": end * RATE, "power": 2.0},
            warmed(warmup, lambda progress: end + (1 - end) * (1 - progress) ** 2),
        ),
        "polynomial by default": (
            "polynomial",
            {},
            warmed(warmup, lambda progress: 1e-7 / RATE + (1 - 1e-7 / RATE) * (1 - progress)),
        ),
        "constant": ("constant", {}, lambda _: 1.0),
        "constant_with_warmup": ("constant_with_warmup", {}, warmed(warmup, lambda _: 1.0)),
        "inverse_sqrt": ("inverse_sqrt", {}, inverse_root(warmup, warmup or 10_000)),
    }


def inverse_root(warmup: int, timescale: int) -> Factors:
    """The root of the timescale over the steps, shifted so that it is 1 after the warm-up (arXiv 2106.04560, 3.5)."""

    def factor(step: int) -> float:
        return step / warmup if step < warmup else math.sqrt(timescale / (step + timescale - warmup))

    return factor


@call(GROUP, phase=Phase.OPTIMIZER)
def schedules_by_name(_ctx: Context) -> Iterator[Check]:
    """get_scheduler gives each schedule its formula in all steps and beyond them, with and without a warm-up."""
    from transformers import get_scheduler

    for warmup in WARMUPS:
        for title, (name, more, wanted) in cases(warmup).items():
            made = get_scheduler(name, optimiser(), warmup, STEPS, scheduler_specific_kwargs=more)
            read = STEPS + 1 if name == "cosine" else LONGER  # what a cosine does beyond its end is not documented
            yield at_most(f"learning rate off, {title}, warm-up {warmup}", off(rates(made, read), wanted), SAME)


@call(GROUP, phase=Phase.OPTIMIZER)
def schedule_timescale(_ctx: Context) -> Iterator[Check]:
    """get_scheduler passes scheduler_specific_kwargs to every schedule, as documented: the timescale of inverse_sqrt.

    https://huggingface.co/docs/transformers/main_classes/optimizer_schedules#transformers.get_scheduler
    """
    from transformers import get_inverse_sqrt_schedule, get_scheduler

    for warmup in WARMUPS:
        direct = get_inverse_sqrt_schedule(optimiser(), warmup, timescale=9)
        named = get_scheduler("inverse_sqrt", optimiser(), warmup, STEPS, scheduler_specific_kwargs={"timescale": 9})
        for title, made in (("by its function", direct), ("by name", named)):
            wanted = inverse_root(warmup, 9)
            yield at_most(f"learning rate off, {title}, warm-up {warmup}", off(rates(made), wanted), SAME)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("schedule_cosine_min",))
def schedules_with_least_rates(_ctx: Context) -> Iterator[Check]:
    """cosine_with_min_lr falls to min_lr, or to min_lr_rate of the learning rate, along as many cycles as given."""
    from transformers import get_scheduler

    for warmup in WARMUPS:
        for title, more in (("min_lr", {"min_lr": 0.1 * RATE}), ("min_lr_rate", {"min_lr_rate": 0.1})):
            made = get_scheduler("cosine_with_min_lr", optimiser(), warmup, STEPS, scheduler_specific_kwargs=more)
            wanted = warmed(warmup, least(0.1, cosine))
            yield at_most(f"learning rate off, {title}, warm-up {warmup}", off(rates(made, STEPS + 1), wanted), SAME)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("schedule_stable",))
def schedules_with_stable_rates(_ctx: Context) -> Iterator[Check]:
    """warmup_stable_decay rises, stays and falls in the steps given, along each type of curve that it documents."""
    from transformers import get_wsd_schedule

    known = inspect.signature(get_wsd_schedule).parameters
    falls: dict[str, Callable[[float], float]] = {"cosine": cosine}
    rises: dict[str, Callable[[float], float]] = {"linear": lambda part: part}
    if "decay_type" in known:
        falls |= {"linear": line, "1-sqrt": lambda part: 1 - math.sqrt(part)}
        rises |= {"cosine": lambda part: 1 - cosine(part)}
    start = LEAST if "warmup_type" in known else 0.0
    given = {"num_stable_steps": LEVEL, "num_training_steps": UP + LEVEL + DOWN}
    ways = [name for name in given if name in known]
    for (fall, falling), (rise, rising), way in itertools.product(falls.items(), rises.items(), ways):
        types = {"decay_type": fall, "warmup_type": rise} if "decay_type" in known else {}
        steps = {"num_warmup_steps": UP, "num_decay_steps": DOWN, way: given[way]}
        made = get_wsd_schedule(optimiser(), **steps, min_lr_ratio=LEAST, **types)
        wanted = [start + (1 - start) * rising(step / UP) for step in range(UP)] + [1.0] * LEVEL
        wanted += [LEAST + (1 - LEAST) * falling(step / DOWN) for step in range(DOWN)]
        wanted += [LEAST] * (LONGER - len(wanted))
        yield at_most(f"learning rate off, {rise} and {fall}, {way}", off(rates(made), wanted.__getitem__), SAME)


def later(factors: Factors, steps: int) -> Factors:
    return lambda step: factors(step + steps)


@call(GROUP, phase=Phase.RESUME)
def schedules_resumed(_ctx: Context) -> Iterator[Check]:
    """A schedule that loads its state goes on where it was, and last_epoch begins one in the middle."""
    from transformers import get_cosine_schedule_with_warmup, get_scheduler

    for title, (name, more, wanted) in cases(6).items():
        if name == "constant":
            continue
        made = get_scheduler(name, optimiser(), 6, STEPS, scheduler_specific_kwargs=more)
        rates(made, 8)
        again = get_scheduler(name, optimiser(), 6, STEPS, scheduler_specific_kwargs=more)
        again.load_state_dict(made.state_dict())
        again.optimizer.load_state_dict(made.optimizer.state_dict())
        found = rates(again, 10)
        yield at_most(f"learning rate off, {title}", off(found, later(wanted, 8)), SAME)
    started = optimiser()
    started.param_groups[0]["initial_lr"] = RATE
    made = get_cosine_schedule_with_warmup(started, 6, STEPS, last_epoch=8)
    found = rates(made, 5)
    yield at_most("learning rate off, last_epoch", off(found, lambda step: warmed(6, cosine)(step + 9)), SAME)
    yield equal("steps counted", made.last_epoch, 14)
