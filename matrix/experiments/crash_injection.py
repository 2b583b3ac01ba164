"""Shows that a disaster in a cell is named rightly, ended soon, and harms no cell that comes after it on its GPUs.

First a clean pass of the healthy cells. Then one run in which each disaster is followed at once by some of them, and
the last one by all: so that as many come after every disaster.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from cases.injection.crash_suite import CASES, CrashCase, crash_case
from cases.injection.crashes import CRASHES
from cases.runtime.silence import SILENCE_S
from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.experiments import selfcheck
from matrix.run import plan, store
from matrix.run import request as asking
from matrix.run.execute import Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.outcome import Outcome
    from matrix.run.pipeline import Work
    from matrix.run.progress import Progress
    from matrix.run.request import Asked

SPARE: Final = 1.5  # cases for so many times the healthy cells: some are red, or cannot be run
RANKS: Final = 2  # of every cell: with one worker, each is on the GPUs of the one before it
ENDS_S: Final = 45.0  # from when a rank was silent for too long until its GPUs are free


@dataclass(frozen=True, kw_only=True)
class Met:
    """One disaster as it was met. Seconds are from the last sign of life of the rank that it happened to."""

    disaster: str
    what: str
    case: str
    verdict: str
    reason: str
    failure: str
    expected: str
    shows: str
    ended_s: float | None  # until the ranks were ended; None if none had to be
    settled_s: float | None  # from there until the GPUs were free; None without GPUs
    left: str  # what stayed on the GPUs
    limit_s: float  # until then all has to be over

    @property
    def is_named(self) -> bool:
        """Whether the verdict and the reason are what they should be."""
        return self.verdict == self.expected and re.search(self.shows, self.reason) is not None

    @property
    def is_over_soon(self) -> bool:
        return not self.left and self.ended_s is not None and self.ended_s + (self.settled_s or 0.0) <= self.limit_s


@dataclass(frozen=True, kw_only=True)
class Harmed:
    """A healthy cell that ended otherwise after a disaster than without one."""

    case: str
    after: str
    verdict: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class OfSet:
    """One version set. ``after`` is the fewest healthy cells that came after any disaster, of the ``wanted`` ones."""

    set: str
    met: tuple[Met, ...]
    not_planted: tuple[str, ...]  # no case of theirs is green without them
    wanted: int
    after: int
    healthy: int  # all that ran
    harmed: tuple[Harmed, ...]
    lost: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Every disaster named and over soon, cells enough after it and none harmed, nothing lost or left out."""
        good = all(each.is_named and each.is_over_soon for each in self.met)
        return (
            bool(self.met) and good and not (self.harmed or self.lost or self.not_planted) and self.after >= self.wanted
        )

    def as_json(self) -> dict[str, Any]:
        rows = [{**asdict(each), "is_named": each.is_named, "is_over_soon": each.is_over_soon} for each in self.met]
        return {**asdict(self), "met": rows, "is_sound": self.is_sound}


def run(
    asked: Asked, *, after: int, directory: Path, watcher: Callable[[int], Progress], say: Callable[[str], None]
) -> tuple[OfSet, ...]:
    """A clean pass and one with disasters, on each set that was asked for; outcomes stay in ``directory``.

    Raises:
        UserError: bad input.
    """
    if (directory / "clean").exists():
        raise UserError(f"--out {directory} holds an earlier selfcheck: choose another, disasters begin anew")
    if after < 1:
        raise UserError(f"--after {after}: expected a whole number above 0")
    healthy = plan.spread([case for case in asked.cases() if case.ranks == RANKS], int(after * SPARE))
    struck = {name: asked.suite.cases[name] for disaster in CRASHES.values() for name in disaster.cases}
    cases = tuple({**{case.id: case for case in healthy}, **struck}.values())
    clean = replace(asked, out=directory / "clean", repeats=1, cold_sample=0)
    whole = [(each, cases) for each in asked.version_sets()]
    asking.run(clean, work=whole, watcher=watcher(len(whole) * len(cases)), say=say)
    _, _, outcomes = store.read(directory / "clean")
    green = selfcheck.green(outcomes)
    work = [
        (each, sequence(asked.place, [case for case in cases if (each.key, case.id) in green], after))
        for each in asked.version_sets()
    ]
    doomed_run = replace(
        clean,
        out=directory / "disasters",
        profile="",
        suite=Suite(module="cases.injection.crash_suite"),
        workers=asked.workers or 1,  # one after the other, so that it is known what comes after what
    )
    asking.run(doomed_run, work=work, watcher=watcher(sum(len(cells) for _, cells in work)), say=say)
    _, _, met = store.read(directory / "disasters")
    return tuple(
        of_set(each.key, cells, selfcheck.of(each.key, met), device=asked.place, wanted=after)
        for each, cells in doomed_cells(work)
    )


def doomed_cells(work: Work) -> list[tuple[Any, list[CrashCase]]]:
    return [(each, [case for case in cells if isinstance(case, CrashCase)]) for each, cells in work]


def sequence(device: str, green: Sequence[Case], after: int) -> list[CrashCase]:
    """The disasters in their order, each with healthy cells behind it: a few, and behind the last one ``after``."""
    names = {case.id for case in green}
    planted = [case for case in CASES.values() if case.clean in names and device in CRASHES[case.crash].shows]
    found: list[CrashCase] = []
    few = max(1, after // max(1, len(planted)))
    for number, case in enumerate(planted):
        last = number == len(planted) - 1
        start = 0 if last else number * few
        behind = [green[(start + step) % len(green)] for step in range(min(after if last else few, len(green)))]
        found += [case, *(crash_case(each.id, case.id.rpartition("-with-")[2], struck=False) for each in behind)]
    return list({case.id: case for case in found}.values())


def of_set(key: str, cells: Sequence[CrashCase], outcomes: Iterable[Outcome], *, device: str, wanted: int) -> OfSet:
    found = {outcome.case: outcome for outcome in outcomes}
    struck = [case for case in cells if case.struck]
    healthy = [case for case in cells if not case.struck]
    planted = {case.crash for case in struck}
    ran = [found[case.id] for case in healthy if case.id in found and found[case.id].verdict in selfcheck.RAN]
    return OfSet(
        set=key,
        met=tuple(met(case, found[case.id], device) for case in struck if case.id in found),
        not_planted=tuple(name for name, each in CRASHES.items() if device in each.shows and name not in planted),
        wanted=wanted,
        after=min((came_after(found[case.id], ran) for case in struck if case.id in found), default=0),
        healthy=len(ran),
        harmed=tuple(
            Harmed(case=case.clean, after=case.crash, verdict=outcome.verdict.value, reason=outcome.reason)
            for case in healthy
            if (outcome := found.get(case.id)) is not None and outcome.verdict is not Verdict.PASS
        ),
        lost=tuple(case.id for case in cells if case.id not in found or found[case.id].verdict is Verdict.LOST),
    )


def came_after(disaster: Outcome, healthy: Sequence[Outcome]) -> int:
    """How many of the healthy cells began when it was over."""
    over = disaster.started + timedelta(seconds=disaster.seconds)
    return sum(outcome.started >= over for outcome in healthy)


def met(case: CrashCase, outcome: Outcome, device: str) -> Met:
    disaster = CRASHES[case.crash]
    return Met(
        disaster=case.crash,
        what=disaster.what,
        case=case.clean,
        verdict=outcome.verdict.value,
        reason=outcome.reason,
        failure=str(outcome.facts.get("failure") or ""),
        expected=disaster.verdict.value,
        shows=disaster.shows[device],
        ended_s=outcome.metrics.get("aftermath_s"),
        settled_s=outcome.metrics.get("gpus_settle_s"),
        left=str(outcome.facts.get("left_on_gpus") or ""),
        limit_s=SILENCE_S[device] + ENDS_S,
    )
