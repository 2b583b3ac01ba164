"""Warns of green cells whose numbers got worse: nearer to a tolerance, slower, or with more memory.

The thresholds were chosen on two pairs of runs: 786 cells of a CPU that ran twice on one busy machine, where the rule
warns of 6 cells, all as slower, and 86 cells of two H200, where it warns of none. On other pairs of runs with the same
lock and hardware, compared in both directions, it warns of 3 of 4,276 comparisons on CPUs and 1 of 204 on GPUs, all as
slower. Two of the three GPU pairs share one run with the pair of the choice.

A busy machine makes all cells slower, so the median ratio of times counts as the machine's if enough cells were
compared. If the new side is the faster one, it counts as 1.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases.space.verdict import Verdict, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matrix.run.outcome import CheckRecord, Outcome

# Shares of a tolerance. Repeats of a cell rise by at most 0.39 of it, and only in calls that draw random numbers.
FAR: Final = 0.4
NEAR: Final = 0.8
MOVED: Final = 0.4  # more than repeats of a cell differ
SLOWER: Final = 2.0
SECONDS: Final = 3.0
MORE_MEMORY: Final = 1.5
MEMORY: Final = {"peak_rss_mib": ("host memory", 64.0), "peak_cuda_mib": ("GPU memory", 16.0)}  # floors in MiB
ENOUGH: Final = 20  # cells for a median ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberWarning:
    """A number of a green cell that got worse: ``what`` went from ``old`` to ``new``, in words."""

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: {self.old} -> {self.new}"


def warnings(base: Outcome, new: Outcome, *, slowdown: float) -> tuple[NumberWarning, ...]:
    """The warnings about a cell that is green on both sides.

    ``slowdown`` is the median ratio of times, or 1. Times and memory of different hardware are not compared.
    """
    if base.verdict is not Verdict.PASS or new.verdict is not Verdict.PASS:
        return ()
    same = base.hardware == new.hardware
    costs = (*slower(base, new, slowdown), *more_memory(base, new)) if same else ()
    return (*nearer(base, new), *costs)


def nearer(base: Outcome, new: Outcome) -> Iterator[NumberWarning]:
    before = {check.name: check for check in base.checks}
    for check in new.checks:
        old = before.get(check.name)
        if old is None or old.op != check.op:
            continue
        was, now = share(old), share(check)
        if was is not None and now is not None and was <= FAR and now >= NEAR:
            bound = f"of the tolerance ({shown(check.value)} {check.op} {shown(check.bound)})"
            yield NumberWarning(what=check.name, old=f"{was:.0%}", new=f"{now:.0%} {bound}")


def moves(base: Outcome, new: Outcome) -> tuple[NumberWarning, ...]:
    """The checks of a cell, green on both sides, that moved a lot within their tolerance, in either direction.

    This is for a change of one package, with which most numbers stay as they are.
    """
    if base.verdict is not Verdict.PASS or new.verdict is not Verdict.PASS:
        return ()
    before = {check.name: check for check in base.checks}
    found = []
    for check in new.checks:
        old = before.get(check.name)
        was, now = share(old) if old is not None and old.op == check.op else None, share(check)
        if was is not None and now is not None and abs(now - was) >= MOVED:
            found.append(NumberWarning(what=check.name, old=f"{was:.0%}", new=f"{now:.0%} of the tolerance"))
    return tuple(found)


def share(check: CheckRecord) -> float | None:
    """The share of the tolerance that a measurement uses; None for counts, words and bounds of 0."""
    value, bound = check.value, check.bound
    if not isinstance(value, int | float) or not isinstance(bound, int | float):
        return None
    if isinstance(value, int) and isinstance(bound, int):
        return None
    if check.op == "<=" and bound > 0:
        return value / bound
    return bound / value if check.op == ">=" and value > 0 and bound > 0 else None


def slower(base: Outcome, new: Outcome, slowdown: float) -> Iterator[NumberWarning]:
    expected = base.seconds * max(1.0, slowdown)
    if base.seconds and new.seconds >= SLOWER * expected and new.seconds - expected >= SECONDS * max(1.0, slowdown):
        yield NumberWarning(what="time", old=f"{base.seconds:.1f} s", new=f"{new.seconds:.1f} s")


def more_memory(base: Outcome, new: Outcome) -> Iterator[NumberWarning]:
    for name, (words, floor) in MEMORY.items():
        old, now = base.metrics.get(name), new.metrics.get(name)
        if old and now and now >= MORE_MEMORY * old and now - old >= floor:
            yield NumberWarning(what=words, old=f"{old:.0f} MiB", new=f"{now:.0f} MiB")


def median_slowdown(pairs: Iterable[tuple[Outcome, Outcome]]) -> float:
    """The median ratio of times, new to base, over green cells on the same hardware; 0 if there are too few."""
    ratios = [
        new.seconds / base.seconds
        for base, new in pairs
        if base.verdict is Verdict.PASS
        and new.verdict is Verdict.PASS
        and base.hardware == new.hardware
        and base.seconds > 0
    ]
    return statistics.median(ratios) if len(ratios) >= ENOUGH else 0.0
