"""The deviations of a rank's modules from the reference, and where they begin. Standard library only.

A rank writes ``RankDeviations`` to a file in its job's folder, which the harness reads after the cell has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.runtime.wire import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cases.runtime.wire import Plain

REQUESTED = "FTMATRIX_LOCATE"  # the environment variable that asks ranks to record their modules
# What is compared, in the order in which a step computes it; kinds of the same pass interleave.
PASSES = {"batch": 0, "input": 0, "output": 0, "gradient": 1, "weight gradient": 2, "weight": 3}
FORWARD, BACKWARD = 0, 1
ANY_FILE = "modules-*.json"


@dataclass(frozen=True)
class Deviation(Message):
    """The distance of one tensor of one module from the reference, relative to it.

    ``kind`` is a key of ``PASSES``; ``gradient`` is that of the module's output. ``step`` counts from 1; the one after
    the last is an evaluation.
    """

    kind: str
    name: str
    step: int
    distance: float
    allowed: float

    @property
    def is_off(self) -> bool:
        return not self.distance <= self.allowed  # also for NaN

    @property
    def module(self) -> str:
        """The module to look into: if only the input of a module is off, the one that computes the input."""
        return self.name.rpartition(".")[0] if self.kind == "input" else self.name


@dataclass(frozen=True)
class RankDeviations(Message):
    """What one rank measured, in the order of execution.

    ``uncompared`` are modules without a counterpart of the same shape in the reference.
    """

    rank: int
    measured: tuple[Deviation, ...] = ()
    uncompared: tuple[str, ...] = ()

    @classmethod
    def typed(cls, found: Plain) -> Plain:
        measured = tuple(Deviation.from_plain(each) for each in found.get("measured", ()))
        return {**found, "measured": measured, "uncompared": tuple(found.get("uncompared", ()))}


@dataclass(frozen=True)
class Beginning:
    """The first deviation of one pass. ``after`` is the last tensor before it in that step, within its tolerance."""

    deviation: Deviation
    rank: int
    after: str = ""


def file_name(stage: int, rank: int) -> str:
    return f"modules-{stage}-{rank}.json"


def beginnings(ranks: Sequence[RankDeviations]) -> list[Beginning]:
    """The first deviation of each pass over all ranks, the earliest pass of the earliest step first."""
    found = [first for number in sorted(set(PASSES.values())) if (first := first_of_pass(ranks, number))]
    return sorted(found, key=lambda each: (each.deviation.step, PASSES[each.deviation.kind]))


def first_of_pass(ranks: Sequence[RankDeviations], number: int) -> Beginning | None:
    """The first tensor of a pass that is off, by step, then by order of execution, then by rank."""
    candidates = [
        (measured[at].step, at, rank.rank, measured)
        for rank in ranks
        for measured in [of_pass(rank, number)]
        for at in [first_index(measured, lambda each: each.is_off)]
        if at is not None
    ]
    if not candidates:
        return None
    _, at, rank, measured = min(candidates, key=lambda each: each[:3])
    before = [each.name for each in measured[:at] if each.step == measured[at].step and each.name != measured[at].name]
    return Beginning(measured[at], rank, before[-1] if before else "")


def of_pass(rank: RankDeviations, number: int) -> list[Deviation]:
    return [each for each in rank.measured if PASSES[each.kind] == number]


def first_index(items: Iterable[Deviation], holds: Callable[[Deviation], bool]) -> int | None:
    return next((number for number, item in enumerate(items) if holds(item)), None)


def curve(rank: RankDeviations, step: int, kind: str) -> dict[str, float]:
    """The largest distance of each module in a step, in order of execution."""
    found: dict[str, float] = {}
    for each in rank.measured:
        if each.step == step and each.kind == kind:
            known = found.get(each.name)
            found[each.name] = each.distance if known is None or not each.distance <= known else known
    return found
