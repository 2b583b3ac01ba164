"""Injects crashes and hangs, and measures whether the harness names them, ends them soon and protects later cells.

A clean pass of healthy cells comes first. A second run starts some of them right after each crash, and all of them
after the last one, so that enough healthy cells follow every crash.
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
from matrix.run import request as run_request
from matrix.run.execute import Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.outcome import Outcome
    from matrix.run.progress import Progress
    from matrix.run.request import RunRequest
    from matrix.run.timings import Work

SPARE: Final = 1.5  # the factor of spare cases, because some are red or cannot run
RANKS: Final = 2  # the ranks of every cell: with one worker, each cell uses the GPUs of the one before it
ENDS_S: Final = 45.0  # the limit from the silence timeout of a rank until its GPUs are free


@dataclass(frozen=True, kw_only=True)
class InjectedCrash:
    """The outcome of one injected crash. Seconds count from the last event of the rank that crashed."""

    crash: str
    what: str
    case: str
    verdict: str
    reason: str
    failure: str
    expected: str
    shows: str
    ended_s: float | None  # until the ranks had ended; None if the supervisor had to end none
    settled_s: float | None  # from then until the GPUs were free; None without GPUs
    left: str  # memory that stayed on the GPUs
    limit_s: float  # for both together

    @property
    def is_named(self) -> bool:
        """Return whether the verdict and the reason are the expected ones."""
        return self.verdict == self.expected and re.search(self.shows, self.reason) is not None

    @property
    def is_over_soon(self) -> bool:
        return not self.left and self.ended_s is not None and self.ended_s + (self.settled_s or 0.0) <= self.limit_s


@dataclass(frozen=True, kw_only=True)
class HarmedCell:
    """A healthy cell that did not pass after a crash."""

    case: str
    after: str
    verdict: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CrashResults:
    """The results of one version set.

    ``after`` is the smallest number of healthy cells that followed any crash; ``wanted`` is how many should follow.
    """

    set: str
    crashes: tuple[InjectedCrash, ...]
    not_injected: tuple[str, ...]  # none of their cases is green without them
    wanted: int
    after: int
    healthy: int  # all healthy cells that ran
    harmed: tuple[HarmedCell, ...]
    lost: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Return whether each crash was named and soon over, and enough cells followed, none harmed or lost."""
        good = all(each.is_named and each.is_over_soon for each in self.crashes)
        return (
            bool(self.crashes)
            and good
            and not (self.harmed or self.lost or self.not_injected)
            and self.after >= self.wanted
        )

    def as_json(self) -> dict[str, Any]:
        rows = [{**asdict(each), "is_named": each.is_named, "is_over_soon": each.is_over_soon} for each in self.crashes]
        return {**asdict(self), "crashes": rows, "is_sound": self.is_sound}


def run(
    request: RunRequest, *, after: int, directory: Path, watcher: Callable[[int], Progress], say: Callable[[str], None]
) -> tuple[CrashResults, ...]:
    """Run a clean pass and one with crashes on each set of the request; outcomes stay in ``directory``.

    Raises:
        UserError: bad input.
    """
    if (directory / "clean").exists():
        raise UserError(
            f"--out {directory} holds an earlier selfcheck; choose another directory: --crashes cannot resume"
        )
    if not any(request.resolved_device in each.shows for each in CRASHES.values()):
        raise UserError(f"--device {request.resolved_device}: --crashes measures cpu and cuda; choose one of them")
    if after < 1:
        raise UserError(f"--after {after}: expected a whole number above 0")
    healthy = plan.spread([case for case in request.cases() if case.ranks == RANKS], int(after * SPARE))
    crashing = {name: request.suite.cases[name] for crash in CRASHES.values() for name in crash.cases}
    cases = tuple({**{case.id: case for case in healthy}, **crashing}.values())
    clean = replace(request, out=directory / "clean", repeats=1, cold_sample=0)
    whole = [(each, cases) for each in request.version_sets()]
    run_request.run(clean, work=whole, watcher=watcher(len(whole) * len(cases)), say=say)
    _, _, outcomes = store.read(directory / "clean")
    green = selfcheck.green(outcomes)
    work = [
        (each, sequence(request.resolved_device, [case for case in cases if (each.key, case.id) in green], after))
        for each in request.version_sets()
    ]
    crash_run = replace(
        clean,
        out=directory / "crashes",
        profile="",
        suite=Suite(module="cases.injection.crash_suite"),
        workers=request.workers or 1,  # one worker makes the order known
    )
    run_request.run(crash_run, work=work, watcher=watcher(sum(len(cells) for _, cells in work)), say=say)
    _, _, injected = store.read(directory / "crashes")
    return tuple(
        of_set(each.key, cells, selfcheck.of(each.key, injected), device=request.resolved_device, wanted=after)
        for each, cells in crash_cases(work)
    )


def crash_cases(work: Work) -> list[tuple[Any, list[CrashCase]]]:
    return [(each, [case for case in cells if isinstance(case, CrashCase)]) for each, cells in work]


def sequence(device: str, green: Sequence[Case], after: int) -> list[CrashCase]:
    """The crashes in their order, each followed by a few healthy cells, and the last one by ``after`` of them."""
    names = {case.id for case in green}
    injected = [case for case in CASES.values() if case.clean in names and device in CRASHES[case.crash].shows]
    cells: list[CrashCase] = []
    few = max(1, after // max(1, len(injected)))
    for number, case in enumerate(injected):
        last = number == len(injected) - 1
        start = 0 if last else number * few
        following = [green[(start + step) % len(green)] for step in range(min(after if last else few, len(green)))]
        cells += [case, *(crash_case(each.id, case.id.rpartition("-with-")[2], injected=False) for each in following)]
    return list({case.id: case for case in cells}.values())


def of_set(
    key: str, cells: Sequence[CrashCase], outcomes: Iterable[Outcome], *, device: str, wanted: int
) -> CrashResults:
    by_case = {outcome.case: outcome for outcome in outcomes}
    crashing = [case for case in cells if case.injected]
    healthy = [case for case in cells if not case.injected]
    injected = {case.crash for case in crashing}
    ran = [by_case[case.id] for case in healthy if case.id in by_case and by_case[case.id].verdict in selfcheck.RAN]
    return CrashResults(
        set=key,
        crashes=tuple(injected_crash(case, by_case[case.id], device) for case in crashing if case.id in by_case),
        not_injected=tuple(name for name, each in CRASHES.items() if device in each.shows and name not in injected),
        wanted=wanted,
        after=min((cells_after(by_case[case.id], ran) for case in crashing if case.id in by_case), default=0),
        healthy=len(ran),
        harmed=tuple(
            HarmedCell(case=case.clean, after=case.crash, verdict=outcome.verdict.value, reason=outcome.reason)
            for case in healthy
            if (outcome := by_case.get(case.id)) is not None and outcome.verdict is not Verdict.PASS
        ),
        lost=tuple(case.id for case in cells if case.id not in by_case or by_case[case.id].verdict is Verdict.LOST),
    )


def cells_after(crash: Outcome, healthy: Sequence[Outcome]) -> int:
    """The number of healthy cells that began after the end of a crash."""
    over = crash.started + timedelta(seconds=crash.seconds)
    return sum(outcome.started >= over for outcome in healthy)


def injected_crash(case: CrashCase, outcome: Outcome, device: str) -> InjectedCrash:
    crash = CRASHES[case.crash]
    return InjectedCrash(
        crash=case.crash,
        what=crash.what,
        case=case.clean,
        verdict=outcome.verdict.value,
        reason=outcome.reason,
        failure=str(outcome.facts.get("failure") or ""),
        expected=crash.verdict.value,
        shows=crash.shows[device],
        ended_s=outcome.metrics.get("aftermath_s"),
        settled_s=outcome.metrics.get("gpus_settle_s"),
        left=str(outcome.facts.get("left_on_gpus") or ""),
        limit_s=SILENCE_S[device] + ENDS_S,
    )
