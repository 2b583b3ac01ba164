"""torch's ReduceLROnPlateau, and its averages of weights, by their definitions."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.optimising.torch_schedules import BASES, GROUP, annealed, by_formula, optimiser, scheduled
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

LOSSES = (1.0, 0.8, 0.8, 0.79, 0.81, 0.7, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.2, 0.2, 0.2, 0.2)


def on_plateau(values: Sequence[float], better: Callable[[float, float], bool], **chosen: Any) -> list[list[float]]:
    """Rates after each value: a rate falls when more than ``patience`` values are no better, outside a cooldown."""
    rates, found = list(BASES), []
    best, bad, rest = None, 0, 0
    for value in values:
        if best is None or better(value, best):
            best, bad = value, 0
        else:
            bad += 1
        if rest > 0:
            rest, bad = rest - 1, 0
        if bad > chosen["patience"]:
            lower = [max(rate * chosen["factor"], least) for rate, least in zip(rates, chosen["min_lr"], strict=True)]
            rates = [b if a - b > chosen["eps"] else a for a, b in zip(rates, lower, strict=True)]
            rest, bad = chosen["cooldown"], 0
        found.append(list(rates))
    return found


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_plateaus(ctx: Context) -> Iterator[Check]:
    """ReduceLROnPlateau counts values that are no better, by both modes of its threshold, and waits after each cut."""
    from torch.optim import lr_scheduler as schedulers

    del ctx
    better: Mapping[tuple[str, str], Callable[[float, float], bool]] = {
        ("min", "rel"): lambda value, best: value < best * (1 - 0.05),
        ("min", "abs"): lambda value, best: value < best - 0.05,
        ("max", "rel"): lambda value, best: value > best * (1 + 0.05),
        ("max", "abs"): lambda value, best: value > best + 0.05,
    }
    for (mode, threshold_mode), rule in better.items():
        values = [each if mode == "min" else 2 - each for each in LOSSES] * 2
        for patience, cooldown in ((0, 0), (1, 2)):
            settings = {"factor": 0.3, "patience": patience, "cooldown": cooldown, "min_lr": [0.001, 0.02], "eps": 1e-3}
            chosen = optimiser()
            more = {"mode": mode, "threshold": 0.05, "threshold_mode": threshold_mode}
            scheduler = schedulers.ReduceLROnPlateau(chosen, **more, **settings)
            found = []
            for number, value in enumerate(values):
                scheduler.step(value)
                found.append([float(group["lr"]) for group in chosen.param_groups])
                if number == len(LOSSES):
                    state = scheduler.state_dict()
                    scheduler = schedulers.ReduceLROnPlateau(chosen, **more, **settings)
                    scheduler.load_state_dict(state)
            wanted = on_plateau(values, rule, **settings)
            title = f"{mode}, {threshold_mode}, patience {patience}"
            yield equal(
                f"values with other rates, {title}",
                sum(one != other for one, other in zip(found, wanted, strict=True)),
                0,
            )


UPDATES, KEPT = 4, 0.7


def floats(model: Any, *, buffers: bool) -> dict[str, Any]:
    named = [*model.named_parameters(), *(model.named_buffers() if buffers else ())]
    return {name: tensor.detach() for name, tensor in named if tensor.is_floating_point()}


def averages(kind: str) -> Iterator[Check]:
    """Average a module with parameters and buffers: the mean of all updates, or an exponential average."""
    import torch
    from torch.optim import swa_utils

    more: Mapping[str, dict[str, Any]] = {
        "mean": {},
        "ema": {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(KEPT)},
        "buffers": {"avg_fn": swa_utils.get_ema_avg_fn(KEPT), "use_buffers": True},
    }
    model = torch.nn.BatchNorm1d(5)
    averaged = swa_utils.AveragedModel(model, **more[kind])
    wanted: dict[str, Any] = {}
    for number in range(UPDATES):
        for name, tensor in floats(model, buffers=True).items():
            tensor.copy_(tiny.values(f"{name} {number}", tuple(tensor.shape)).abs())
        averaged.update_parameters(model)
        share = 1 / (number + 1) if kind == "mean" or number == 0 else 1 - KEPT
        for name, tensor in floats(model, buffers=kind == "buffers").items():
            wanted[name] = (1 - share) * wanted.get(name, 0) + share * tensor.double()
    state = averaged.module.state_dict()
    worst = max(tolerance.relative(state[name].double(), each) for name, each in wanted.items())
    yield at_most(f"average off, {kind}", worst, 8 * tolerance.UNIT_ROUNDOFF["fp32"])
    yield equal(f"averaged models, {kind}", int(averaged.n_averaged), UPDATES)
    if kind != "buffers":
        unlike = sum(int((state[name] != tensor).sum()) for name, tensor in model.named_buffers())
        yield equal(f"buffers that differ from the last ones, {kind}", unlike, 0)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_averaged_weights(ctx: Context) -> Iterator[Check]:
    """AveragedModel keeps the mean of weights, or an exponential average with buffers; SWALR anneals to its rate."""
    from torch.optim import swa_utils

    del ctx
    for kind in ("mean", "ema", "buffers"):
        yield from averages(kind)
    for strategy in ("cos", "linear"):

        def make(each: Any, strategy: str = strategy) -> Any:
            return swa_utils.SWALR(each, swa_lr=[0.05, 0.01], anneal_epochs=6, anneal_strategy=strategy)

        rates = [
            (lambda step, b=b, s=s: annealed(b, s, min(step, 6) / 6))
            if strategy == "cos"
            else (lambda step, b=b, s=s: b + (s - b) * min(step, 6) / 6)
            for b, s in zip(BASES, (0.05, 0.01), strict=True)
        ]
        yield by_formula(f"SWALR, {strategy}", scheduled(make), rates)


@call(GROUP, phase=Phase.OPTIMIZER)
def torch_swalr_edges(ctx: Context) -> Iterator[Check]:
    """SWALR of few epochs jumps or anneals to its rate, up or down, and stays there; it refuses other settings.

    With anneal_epochs=0 it sets swa_lr at once, before the first step.
    """
    from torch.optim import swa_utils

    del ctx
    for strategy, epochs in itertools.product(("cos", "linear"), (0, 1, 2, 3)):
        for swa in ((0.05, 0.01), (0.4, 0.9)):

            def make(each: Any, strategy: str = strategy, epochs: int = epochs, swa: tuple[float, float] = swa) -> Any:
                return swa_utils.SWALR(each, swa_lr=[*swa], anneal_epochs=epochs, anneal_strategy=strategy)

            def rate(step: int, begin: float, end: float, strategy: str = strategy, epochs: int = epochs) -> float:
                share = min(step / epochs, 1.0) if epochs else 1.0
                return annealed(begin, end, share) if strategy == "cos" else begin + (end - begin) * share

            rates = [
                functools.partial(lambda step, b, s, rate=rate: rate(step, b, s), b=b, s=s)
                for b, s in zip(BASES, swa, strict=True)
            ]
            yield by_formula(f"SWALR, {strategy}, {epochs} epochs to {swa}", scheduled(make, 6), rates)
    settings: Mapping[str, dict[str, Any]] = {
        "another strategy": {"anneal_strategy": "log"},
        "epochs below 0": {"anneal_epochs": -1},
        "half an epoch": {"anneal_epochs": 0.5},
        "rates of other groups": {"swa_lr": [0.1]},
    }
    for title, more in settings.items():
        raised = refusal(swa_utils.SWALR, optimiser(), **{"swa_lr": 0.1, **more})
        yield equal(f"refused, {title}", raised, "ValueError")
