"""The edges of torch's schedulers: chains of one, what they refuse, their last rates, and states between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.optimising.old_states import refusal
from cases.behaviour.optimising.torch_schedules import BASES, LEAST, SAME, optimiser
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Make = Callable[[Any], Any]

GROUP = "torch's schedulers"
STEPS = 9
# Rates that two classes set themselves; div_factor is 25 by default.
OWN_BASES: Mapping[str, list[float]] = {"CyclicLR": [0.1, 0.2], "OneCycleLR": [0.3 / 25, 0.5 / 25]}


def makers() -> Mapping[str, Make]:
    """A scheduler of every class whose step takes no metric, for an optimiser of two groups."""
    from torch.optim import lr_scheduler as schedulers

    return {
        "StepLR": lambda each: schedulers.StepLR(each, 3, 0.5),
        "MultiStepLR": lambda each: schedulers.MultiStepLR(each, [2, 5], 0.5),
        "ConstantLR": lambda each: schedulers.ConstantLR(each, 0.5, 4),
        "LinearLR": lambda each: schedulers.LinearLR(each, 0.25, 1.0, 4),
        "ExponentialLR": lambda each: schedulers.ExponentialLR(each, 0.9),
        "PolynomialLR": lambda each: schedulers.PolynomialLR(each, 6, 2.0),
        "CosineAnnealingLR": lambda each: schedulers.CosineAnnealingLR(each, 6, LEAST),
        "CosineAnnealingWarmRestarts": lambda each: schedulers.CosineAnnealingWarmRestarts(each, 3, 2, LEAST),
        "LambdaLR": lambda each: schedulers.LambdaLR(each, [lambda step: 1 / (step + 1), lambda step: 0.5**step]),
        "MultiplicativeLR": lambda each: schedulers.MultiplicativeLR(each, lambda _: 0.75),
        "CyclicLR": lambda each: schedulers.CyclicLR(each, [0.1, 0.2], [0.3, 0.5], 2, cycle_momentum=False),
        "OneCycleLR": lambda each: schedulers.OneCycleLR(each, [0.3, 0.5], STEPS + 1, cycle_momentum=False),
    }


def rates(chosen: Any) -> list[float]:
    return [float(group["lr"]) for group in chosen.param_groups]


def largest_error(found: list[list[float]], wanted: list[list[float]]) -> float:
    pairs = [
        (one, other)
        for row, expected in zip(found, wanted, strict=True)
        for one, other in zip(row, expected, strict=True)
    ]
    return max(abs(one - other) / max(abs(other), LEAST) for one, other in pairs)


def path_of(make: Make, steps: int = STEPS) -> tuple[list[list[float]], list[list[float]]]:
    """The rates of the groups, and what get_last_lr states, before each step."""
    chosen = optimiser()
    scheduler = make(chosen)
    found, stated = [], []
    for _ in range(steps):
        found.append(rates(chosen))
        stated.append([float(each) for each in scheduler.get_last_lr()])
        chosen.step()
        scheduler.step()
    return found, stated


@call(GROUP, phase=Phase.OPTIMIZER)
def schedules_state_last_rates(_ctx: Context) -> Iterator[Check]:
    """get_last_lr is what the groups have, initial_lr what they had, and last_epoch counts the steps."""
    for name, make in makers().items():
        found, stated = path_of(make)
        yield equal(f"last rates, {name}", str(stated), str(found))
        chosen = optimiser()
        scheduler = make(chosen)
        yield equal(f"last_epoch at the start, {name}", scheduler.last_epoch, 0)
        for _ in range(3):
            chosen.step()
            scheduler.step()
        yield equal(f"last_epoch, {name}", scheduler.last_epoch, 3)
        bases = OWN_BASES.get(name, list(BASES))
        found_bases = [group["initial_lr"] for group in chosen.param_groups]
        yield equal(f"initial rates, {name}", str(found_bases), str(bases))
        yield equal(f"base rates, {name}", str(scheduler.base_lrs), str(bases))
        yield equal(f"optimiser in the state, {name}", "optimizer" in scheduler.state_dict(), bound=False)


@call(GROUP, phase=Phase.OPTIMIZER)
def schedules_chained(_ctx: Context) -> Iterator[Check]:
    """A chain or sequence of one scheduler does what it does alone, states its rates, and goes on from a state."""
    from torch.optim import lr_scheduler as schedulers

    chains: Mapping[str, Callable[[Any, Any], Any]] = {
        "chained": lambda each, make: schedulers.ChainedScheduler([make(each)]),
        "chained, named": lambda each, make: schedulers.ChainedScheduler([make(each)], optimizer=each),
        "in a row": lambda each, make: schedulers.SequentialLR(each, [make(each)], []),
    }
    for name, make in makers().items():
        wanted, _ = path_of(make)
        for title, chain in chains.items():
            whole: Make = lambda each, c=chain, m=make: c(each, m)  # type: ignore[misc]  # noqa: E731
            found, stated = path_of(whole)
            yield at_most(f"rates off, {name}, {title}", largest_error(found, wanted), SAME)
            yield at_most(f"last rates off, {name}, {title}", largest_error(stated, wanted), SAME)
            chosen = optimiser()
            scheduler = whole(chosen)
            for _ in range(3):
                chosen.step()
                scheduler.step()
            again = optimiser()
            later = whole(again)
            again.load_state_dict(chosen.state_dict())
            later.load_state_dict(scheduler.state_dict())
            rest = []
            for _ in range(3, STEPS):
                rest.append(rates(again))
                again.step()
                later.step()
            yield at_most(f"rates after loading off, {name}, {title}", largest_error(rest, wanted[3:]), SAME)


@call(GROUP, phase=Phase.OPTIMIZER)
def schedules_refuse(_ctx: Context) -> Iterator[Check]:
    """Schedulers refuse empty chains, other optimisers, wrong counts and settings outside of their ranges, by words."""
    from torch.optim import lr_scheduler as schedulers

    one, other = optimiser(), optimiser()
    step, exponential = schedulers.StepLR(one, 3), schedulers.ExponentialLR(other, 0.9)
    plateau = schedulers.ReduceLROnPlateau
    attempts: Mapping[str, tuple[Callable[[], Any], str, type[Exception]]] = {
        "an empty chain": (lambda: schedulers.ChainedScheduler([]), "expects at least one scheduler", ValueError),
        "a chain of two optimisers": (
            lambda: schedulers.ChainedScheduler([step, exponential]),
            "ChainedScheduler expects all schedulers to belong to the same optimizer",
            ValueError,
        ),
        "an empty row": (lambda: schedulers.SequentialLR(one, [], []), "expects at least one scheduler", ValueError),
        "a row of another optimiser": (
            lambda: schedulers.SequentialLR(one, [step, exponential], [2]),
            "SequentialLR expects all schedulers to belong to the same optimizer",
            ValueError,
        ),
        "a row without milestones": (
            lambda: schedulers.SequentialLR(one, [step, step], []),
            "expects number of schedulers provided to be one more than the number of milestone points",
            ValueError,
        ),
        "one function for two groups": (
            lambda: schedulers.LambdaLR(one, [lambda _: 1.0]),
            "Expected 2 lr_lambdas, but got 1",
            ValueError,
        ),
        "one factor for two groups": (
            lambda: schedulers.MultiplicativeLR(one, [lambda _: 1.0]),
            "Expected 2 lr_lambdas, but got 1",
            ValueError,
        ),
        "no optimiser": (lambda: schedulers.StepLR(3, 3), "int is not an Optimizer", TypeError),
        "a factor above 1": (
            lambda: schedulers.ConstantLR(one, 1.5),
            "Constant multiplicative factor expected to be between 0 and 1.",
            ValueError,
        ),
        "a start of 0": (
            lambda: schedulers.LinearLR(one, 0.0),
            "Starting multiplicative factor expected to be greater than 0 and less or equal to 1.",
            ValueError,
        ),
        "an end above 1": (
            lambda: schedulers.LinearLR(one, 0.5, 1.5),
            "Ending multiplicative factor expected to be between 0 and 1.",
            ValueError,
        ),
        "a period of 0": (
            lambda: schedulers.CosineAnnealingWarmRestarts(one, 0),
            "Expected positive integer T_0, but got 0",
            ValueError,
        ),
        "periods that shrink": (
            lambda: schedulers.CosineAnnealingWarmRestarts(one, 2, 0),
            "Expected integer T_mult >= 1, but got 0",
            ValueError,
        ),
        "a plateau of factor 1": (lambda: plateau(one, factor=1.0), "Factor should be < 1.0.", ValueError),
        "a plateau of no optimiser": (lambda: plateau(3), "int is not an Optimizer", TypeError),
        "a plateau of another mode": (lambda: plateau(one, "mean"), "mode mean is unknown!", ValueError),
        "another mode of thresholds": (
            lambda: plateau(one, threshold_mode="mean"),
            "threshold mode mean is unknown!",
            ValueError,
        ),
        "another mode of cycles": (
            lambda: schedulers.CyclicLR(optimiser(), 0.1, 0.2, mode="mean", cycle_momentum=False),
            "mode is invalid and scale_fn is None",
            ValueError,
        ),
        "one cycle of no length": (
            lambda: schedulers.OneCycleLR(one, 0.1),
            "You must define either total_steps",
            ValueError,
        ),
        "one cycle of 0 steps": (
            lambda: schedulers.OneCycleLR(one, 0.1, 0),
            "Expected positive integer total_steps, but got 0",
            ValueError,
        ),
        "one cycle of 0 epochs": (
            lambda: schedulers.OneCycleLR(one, 0.1, epochs=0, steps_per_epoch=3),
            "Expected positive integer epochs, but got 0",
            ValueError,
        ),
        "one cycle of epochs without steps": (
            lambda: schedulers.OneCycleLR(one, 0.1, epochs=3, steps_per_epoch=0),
            "Expected positive integer steps_per_epoch, but got 0",
            ValueError,
        ),
        "one cycle that only rises": (
            lambda: schedulers.OneCycleLR(one, 0.1, 9, pct_start=1.5),
            "Expected float between 0 and 1 pct_start, but got 1.5",
            ValueError,
        ),
        "one cycle along another curve": (
            lambda: schedulers.OneCycleLR(one, 0.1, 9, anneal_strategy="square"),
            "anneal_strategy must be one of 'cos' or 'linear', instead got square",
            ValueError,
        ),
    }
    for title, (action, words, kind) in attempts.items():
        yield equal(title, refusal(action, words, kind), words)
    yield equal("rates afterwards", str(rates(one)), str(list(BASES)))


@call(GROUP, phase=Phase.OPTIMIZER)
def schedules_of_tensor_rates(_ctx: Context) -> Iterator[Check]:
    """A rate that is a tensor follows the schedule of one that is a number, as the same tensor, of every class."""
    import torch

    for name, make in makers().items():
        wanted, _ = path_of(make)
        chosen = optimiser()
        held = [torch.tensor(base, dtype=torch.float64) for base in BASES]
        for group, rate in zip(chosen.param_groups, held, strict=True):
            group["lr"] = rate
        scheduler = make(chosen)
        found = []
        for _ in range(STEPS):
            found.append(rates(chosen))
            chosen.step()
            scheduler.step()
        yield at_most(f"rates off, {name}", largest_error(found, wanted), 1e-9)
        if name != "CosineAnnealingWarmRestarts" or torch.__version__ >= (2, 10):  # earlier, step() assigned a number
            same = all(group["lr"] is rate for group, rate in zip(chosen.param_groups, held, strict=True))
            yield equal(f"the same tensors, {name}", same, bound=True)
