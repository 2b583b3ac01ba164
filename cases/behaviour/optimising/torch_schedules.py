"""torch's learning rate schedulers by their documented formulas, in closed form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Rate = Callable[[int], float]

GROUP = "torch's schedulers"
STEPS = 23
BASES = (0.3, 0.07)  # the rates of two groups
SAME = 1e-12  # relative to the base rate: some tens of products in float64
LEAST = 0.01
MILESTONES, SHORT = (3, 3, 11), 5
UNEVEN = 5  # a period that does not end where scheduled() reloads: a scheduler that starts anew there has other rates
STARTS = (4, 14)  # of the second and the third scheduler in a row


def optimiser(*, momentum: bool = False) -> Any:
    import torch

    groups = [{"params": [torch.nn.Parameter(torch.ones(2))], "lr": base} for base in BASES]
    return torch.optim.SGD(groups, lr=1.0, momentum=0.5 if momentum else 0.0)


def scheduled(make: Callable[[Any], Any], steps: int = STEPS, *, key: str = "lr") -> list[list[float]]:
    """The rates, or another number, of all groups before each step. Half of them come from a reloaded scheduler."""
    chosen = optimiser(momentum=key == "momentum")
    scheduler = make(chosen)
    found = []
    for step in range(steps):
        found.append([float(group[key]) for group in chosen.param_groups])
        chosen.step()
        scheduler.step()
        if step == steps // 2:
            states = chosen.state_dict(), scheduler.state_dict()
            chosen = optimiser(momentum=key == "momentum")
            scheduler = make(chosen)
            chosen.load_state_dict(states[0])
            scheduler.load_state_dict(states[1])
    return found


def by_formula(title: str, found: list[list[float]], rates: Sequence[Callable[[int], float]]) -> Check:
    wanted = [[rate(step) for rate in rates] for step in range(len(found))]
    errors = [
        abs(one - other) / base
        for row, expected in zip(found, wanted, strict=True)
        for one, other, base in zip(row, expected, BASES, strict=True)
    ]
    return at_most(f"rates off, {title}", max(errors), SAME)


def scaled(factor: Rate) -> list[Rate]:
    """The base rates times a factor of the step."""
    return [lambda step, base=base: base * factor(step) for base in BASES]  # type: ignore[misc]


def linear(first: float, last: float, steps: int) -> Rate:
    return lambda step: first + (last - first) * min(step, steps) / steps


def annealed(base: float, least: float, share: float) -> float:
    """SGDR's cosine (https://arxiv.org/abs/1608.03983, equation 5)."""
    return least + (base - least) * (1 + math.cos(math.pi * share)) / 2


def restarted(step: int, first: int, factor: int) -> float:
    """How far a step is in its period; each one is longer than the last by a factor."""
    period = first
    while step >= period:
        step, period = step - period, period * factor
    return step / period


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_schedules_of_factors(ctx: Context) -> Iterator[Check]:
    """StepLR, MultiStepLR, ConstantLR, LinearLR, ExponentialLR, PolynomialLR, LambdaLR and MultiplicativeLR.

    https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate
    """
    from torch.optim import lr_scheduler as schedulers

    del ctx
    table: Mapping[str, tuple[Callable[[Any], Any], Rate]] = {
        "StepLR": (lambda each: schedulers.StepLR(each, 4, 0.5), lambda step: 0.5 ** (step // 4)),
        "MultiStepLR": (
            lambda each: schedulers.MultiStepLR(each, list(MILESTONES), 0.4),
            lambda step: 0.4 ** sum(step >= milestone for milestone in MILESTONES),
        ),
        "ConstantLR": (lambda each: schedulers.ConstantLR(each, 0.25, SHORT), lambda step: (0.25, 1.0)[step >= SHORT]),
        "LinearLR": (lambda each: schedulers.LinearLR(each, 0.2, 0.9, 7), linear(0.2, 0.9, 7)),
        "ExponentialLR": (lambda each: schedulers.ExponentialLR(each, 0.9), lambda step: 0.9**step),
        "PolynomialLR": (
            lambda each: schedulers.PolynomialLR(each, 9, 1.5),
            lambda step: (1 - min(step, 9) / 9) ** 1.5,
        ),
        "MultiplicativeLR": (
            lambda each: schedulers.MultiplicativeLR(each, lambda step: 1 - 0.1 * (step % UNEVEN)),
            lambda step: math.prod(1 - 0.1 * (each % UNEVEN) for each in range(1, step + 1)),
        ),
        "LambdaLR": (lambda each: schedulers.LambdaLR(each, lambda step: 1 / (1 + step)), lambda step: 1 / (1 + step)),
    }
    for name, (make, factor) in table.items():
        yield by_formula(name, scheduled(make), scaled(factor))


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_schedules_of_cosines(ctx: Context) -> Iterator[Check]:
    """CosineAnnealingLR, also beyond its end, and CosineAnnealingWarmRestarts follow the cosine of SGDR."""
    from torch.optim import lr_scheduler as schedulers

    del ctx
    found = scheduled(lambda each: schedulers.CosineAnnealingLR(each, 8, LEAST))
    yield by_formula("CosineAnnealingLR", found, [lambda step, b=b: annealed(b, LEAST, step / 8) for b in BASES])  # type: ignore[misc]
    for factor in (1, 2):
        found = scheduled(
            lambda each, factor=factor: schedulers.CosineAnnealingWarmRestarts(each, 3, factor, LEAST)  # type: ignore[misc]
        )
        rates = [lambda step, b=b, f=factor: annealed(b, LEAST, restarted(step, 3, f)) for b in BASES]
        yield by_formula(f"CosineAnnealingWarmRestarts by {factor}", found, rates)


def triangle(step: int, up: int, down: int) -> tuple[float, int]:
    """How high a cycle is at a step, from 0 to 1, and the number of the cycle from 0 on."""
    cycle, at = divmod(step, up + down)
    return (at / up if at <= up else 1 - (at - up) / down), cycle


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_cyclic_schedules(ctx: Context) -> Iterator[Check]:
    """CyclicLR goes up and down in its three modes, and moves the momentum against the rate.

    https://arxiv.org/abs/1506.01186
    """
    from torch.optim import lr_scheduler as schedulers

    del ctx
    low, high = [0.02, 0.01], [0.3, 0.1]
    shrinking: Mapping[str, Callable[[int, int], float]] = {
        "triangular": lambda _step, _cycle: 1.0,
        "triangular2": lambda _step, cycle: 0.5**cycle,
        "exp_range": lambda step, _cycle: 0.95**step,
    }
    for mode, shrink in shrinking.items():

        def make(each: Any, mode: str = mode) -> Any:
            more = {"step_size_up": 3, "step_size_down": 5, "mode": mode, "gamma": 0.95}
            return schedulers.CyclicLR(each, low, high, base_momentum=0.6, max_momentum=0.9, **more)

        def height(step: int, shrink: Callable[[int, int], float] = shrink) -> float:
            up, cycle = triangle(step, 3, 5)
            return up * shrink(step, cycle)

        rates = [
            lambda step, a=a, b=b, height=height: a + (b - a) * height(step) for a, b in zip(low, high, strict=True)
        ]
        yield by_formula(f"CyclicLR, {mode}", scheduled(make), rates)
        momenta = [lambda step, height=height: 0.9 - 0.3 * height(step)] * 2
        yield by_formula(f"momenta of CyclicLR, {mode}", scheduled(make, key="momentum"), momenta)


def from_to(one: float, other: float, share: float) -> float:
    """The cosine from one value to another."""
    return annealed(one, other, share)


def phases(
    step: int, ends: Sequence[float], values: Sequence[float], mix: Callable[[float, float, float], float]
) -> float:
    """Interpolate between values at the ends of phases, the first of which begins at 0."""
    start = 0.0
    for number, end in enumerate(ends):
        if step <= end or number == len(ends) - 1:
            return mix(values[number], values[number + 1], (step - start) / (end - start))
        start = end
    raise ValueError(step)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_one_cycle(ctx: Context) -> Iterator[Check]:
    """OneCycleLR rises and falls in two or three phases, by cosines or lines, with the momentum against it.

    https://arxiv.org/abs/1708.07120
    """
    from torch.optim import lr_scheduler as schedulers

    del ctx
    most = [0.3, 0.1]
    mixes: Mapping[str, Callable[[float, float, float], float]] = {
        "cos": from_to,
        "linear": lambda one, other, share: one + (other - one) * share,
    }
    for strategy, mix in mixes.items():
        for three in (False, True):

            def make(each: Any, strategy: str = strategy, *, three: bool = three) -> Any:
                more = {"pct_start": 0.25, "anneal_strategy": strategy, "three_phase": three}
                more |= {"base_momentum": 0.6, "max_momentum": 0.9, "div_factor": 10.0, "final_div_factor": 50.0}
                return schedulers.OneCycleLR(each, most, total_steps=STEPS, **more)

            top = 0.25 * STEPS - 1
            ends = [top, 2 * top, STEPS - 1] if three else [top, STEPS - 1]
            levels = [0.1, 1.0, 0.1, 0.002] if three else [0.1, 1.0, 0.002]
            momenta = [0.9, 0.6, 0.9, 0.9] if three else [0.9, 0.6, 0.9]
            rates = [
                lambda step, m=m, e=ends, v=levels, mix=mix: phases(step, e, [m * each for each in v], mix)
                for m in most
            ]
            title = f"{strategy}, {2 + three} phases"
            yield by_formula(f"OneCycleLR, {title}", scheduled(make), rates)
            moved = [lambda step, e=ends, v=momenta, mix=mix: phases(step, e, v, mix)] * 2
            yield by_formula(f"momenta of OneCycleLR, {title}", scheduled(make, key="momentum"), moved)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_joined_schedules(ctx: Context) -> Iterator[Check]:
    """SequentialLR starts each scheduler at its milestone; ChainedScheduler multiplies the factors of all."""
    from torch.optim import lr_scheduler as schedulers

    del ctx

    def in_turn(each: Any) -> Any:
        parts = [
            schedulers.LinearLR(each, 0.1, 1.0, 4),
            schedulers.CosineAnnealingLR(each, 10, LEAST),
            schedulers.ConstantLR(each, 0.5, SHORT),
        ]
        return schedulers.SequentialLR(each, parts, list(STARTS))

    def rate(step: int, base: float) -> float:
        if step < STARTS[0]:
            return base * linear(0.1, 1.0, 4)(step)
        if step < STARTS[1]:
            return annealed(base, LEAST, (step - STARTS[0]) / 10)
        return base * (0.5, 1.0)[step >= STARTS[1] + SHORT]

    found = scheduled(in_turn)
    yield by_formula("SequentialLR", found, [lambda step, base=base: rate(step, base) for base in BASES])  # type: ignore[misc]

    def chained(each: Any) -> Any:
        return schedulers.ChainedScheduler(
            [schedulers.ConstantLR(each, 0.5, SHORT), schedulers.ExponentialLR(each, 0.9)]
        )

    factor: Rate = lambda step: (0.5, 1.0)[step >= SHORT] * 0.9**step  # noqa: E731 - one rate among others
    yield by_formula("ChainedScheduler", scheduled(chained), scaled(factor))
