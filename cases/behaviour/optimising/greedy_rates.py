"""GreedyLR, the schedule that raises the rate while a metric improves and cuts it while it does not.

https://arxiv.org/abs/2512.14527
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Learning-rate schedules"
NEEDS = ("greedy_schedule",)
RATES = (0.25, 0.5)
SAME = 1e-12
# Losses that fall, rest, fall again, rise until a schedule has started again, fall once more, and swing.
LOSSES: Sequence[float] = (
    *(8.0 - 0.5 * n for n in range(8)),
    *(4.5 for _ in range(9)),
    *(4.0 - 0.25 * n for n in range(7)),
    *(3.0 + 0.125 * n for n in range(24)),
    *(5.75 - 0.25 * n for n in range(9)),
    *(3.75 + 0.375 * (n % 3) for n in range(21)),
)
BASE: Mapping[str, Any] = {"factor": 0.5, "patience": 1, "min_lr": 0.001, "max_lr": 64.0}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "patience": {"patience": 3},
    "other factor": {"factor": 0.8},
    "threshold": {"threshold": 0.3},
    "relative threshold": {"threshold": 0.08, "threshold_mode": "rel"},
    "cooldown": {"cooldown": 2},
    "warmup": {"warmup": 3},
    "bounds": {"min_lr": 0.125, "max_lr": 1.0},
    "bounds of groups": {"min_lr": [0.125, 0.0625], "max_lr": [1.0, 0.5]},
    "smooth": {"smooth": True, "window_size": 3},
    "starts again": {"min_lr": 0.2, "reset_start": 2},
    "starts again smooth": {"min_lr": 0.2, "reset_start": 2, "smooth": True, "window_size": 2},
    "least change": {"eps": 0.3},
}


@dataclass
class Greedy:
    """The schedule as its documentation tells it, for rates of several groups."""

    settings: Mapping[str, Any]
    larger: bool
    rates: list[float] = field(default_factory=lambda: [*RATES])
    seen: list[float] = field(default_factory=list)
    good: int = 0
    bad: int = 0
    waiting: int = 0
    left: int = 0
    best: float | None = None

    def __post_init__(self) -> None:
        self.left = self.settings.get("reset_start", 500)

    def bound(self, name: str, group: int) -> float:
        found = self.settings[name]
        return float(found[group] if isinstance(found, list) else found)

    def improves(self, metric: float) -> bool:
        if self.best is None:
            return True
        gap = self.settings.get("threshold", 1e-6)
        least = abs(self.best) * gap if self.settings.get("threshold_mode") == "rel" else gap
        return bool(metric > self.best + least if self.larger else metric < self.best - least)

    def step(self, metric: float) -> None:
        self.seen.append(metric)
        if self.settings.get("smooth"):
            window = self.seen[-self.settings["window_size"] :]
            metric = sum(window) / len(window)
        if self.waiting:
            self.waiting, self.good, self.bad = self.waiting - 1, 0, 0
            return
        if self.improves(metric):
            self.best, self.good, self.bad = metric, self.good + 1, 0
        else:
            self.good, self.bad = 0, self.bad + 1
        if self.good > self.settings["patience"]:
            self.change(1 / self.settings["factor"])
            self.good, self.waiting, self.left = (
                0,
                self.settings.get("warmup", 0),
                self.settings.get("reset_start", 500),
            )
        elif self.bad > self.settings["patience"]:
            again = self.change(self.settings["factor"])
            self.bad, self.waiting = 0, self.settings.get("cooldown", 0)
            if again:
                self.rates, self.best, self.seen, self.left = [*RATES], None, [], self.settings["reset_start"]

    def change(self, times: float) -> bool:
        """Move the rates within their bounds; return whether they were so often at their least that all begins anew."""
        for group, rate in enumerate(self.rates):
            low, high = self.bound("min_lr", group), self.bound("max_lr", group)
            moved = min(rate * times, high) if times > 1 else max(rate * times, low)
            if abs(moved - rate) > self.settings.get("eps", 1e-8):
                self.rates[group] = moved
        if times > 1 or any(rate > self.bound("min_lr", group) for group, rate in enumerate(self.rates)):
            return False
        self.left -= 1
        return self.left <= 0


def optimiser() -> Any:
    import torch

    weights = [torch.nn.Parameter(torch.zeros(2)) for _ in RATES]
    return torch.optim.SGD([{"params": [w], "lr": rate} for w, rate in zip(weights, RATES, strict=True)])


def rates(made: Any) -> list[float]:
    return [float(group["lr"]) for group in made.param_groups]


def off(found: Sequence[float], wanted: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(found, wanted, strict=True))


@call(GROUP, phase=Phase.OPTIMIZER, requires=NEEDS)
def greedy_rates(_ctx: Context) -> Iterator[Check]:
    """GreedyLR raises and cuts the rates of all groups as documented, by every option, for losses and for scores.

    Its state counts the steps, as the states of torch's schedules do.
    """
    from transformers.optimization import get_greedy_schedule

    for title, more in SETTINGS.items():
        for mode in ("min", "max"):
            made, settings = optimiser(), {**BASE, **more}
            schedule = get_greedy_schedule(made, mode=mode, **settings)
            twin = Greedy(settings, mode == "max")
            worst, moved = 0.0, set()
            for loss in LOSSES:
                metric = loss if mode == "min" else 12.0 - loss
                schedule.step(metric)
                twin.step(metric)
                worst = max(worst, off(rates(made), twin.rates), off(schedule.get_last_lr(), twin.rates))
                moved.add(tuple(twin.rates))
            yield at_most(f"rates off, {title}, {mode}", worst, SAME)
            yield equal(f"steps counted, {title}, {mode}", schedule.state_dict()["last_epoch"], len(LOSSES))
            yield equal(f"rates change, {title}, {mode}", len(moved) > 2, bound=True)  # noqa: PLR2004 - up and down


@call(GROUP, phase=Phase.OPTIMIZER, requires=NEEDS)
def greedy_rates_resumed(_ctx: Context) -> Iterator[Check]:
    """GreedyLR goes on from its saved state with the rates of a schedule that never stopped."""
    for title, more in SETTINGS.items():
        settings = {**BASE, **more}
        worst = max(resumed_off(settings, stopped) for stopped in range(1, len(LOSSES)))
        yield at_most(f"rates off after loading, {title}", worst if math.isfinite(worst) else 1.0, 0.0)


def resumed_off(settings: Mapping[str, Any], stopped: int) -> float:
    """The largest difference between the rates of one schedule and of one that was saved and loaded after some steps.

    The counters of good and bad steps, of the cooldown and of the restarts have other values at each step.
    """
    from transformers.optimization import get_greedy_schedule

    whole, begun, other = optimiser(), optimiser(), optimiser()
    first, second = get_greedy_schedule(whole, **settings), get_greedy_schedule(begun, **settings)
    for loss in LOSSES[:stopped]:
        first.step(loss)
        second.step(loss)
    again = get_greedy_schedule(other, **BASE)
    again.load_state_dict(second.state_dict())
    worst = off(rates(other), rates(whole))
    for loss in LOSSES[stopped:]:
        first.step(loss)
        again.step(loss)
        worst = max(worst, off(rates(other), rates(whole)))
    return worst
