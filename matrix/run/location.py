"""Runs cells once more with every module recorded, and stores the first that deviates from the reference.

``traced_location`` follows for cells whose modules the reference does not know, and for those that raise.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from cases.runtime import deviations
from cases.runtime.deviations import BACKWARD, FORWARD, RankDeviations
from cases.space.options import OWN_CODE
from cases.space.verdict import Verdict
from matrix.run import rerun, traced_location
from matrix.run.outcome import DeviationRecord, LocationRecord
from matrix.run.store import WORK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cases.runtime.deviations import Beginning
    from cases.space.case import Case
    from matrix.run.context import RunContext
    from matrix.run.outcome import Outcome
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet

NONE: Final = "none"
RED: Final = "red"
VERDICTS: Final = {
    "wrong": {Verdict.WRONG},
    RED: {Verdict.WRONG, Verdict.FAIL},
    "all": {Verdict.WRONG, Verdict.PASS},
    NONE: frozenset[Verdict](),
}
CHOICES: Final = tuple(VERDICTS)


def run(work: Work, choice: str, ctx: RunContext) -> None:
    """Locate the deviation of every chosen cell of the work; resumed runs also locate cells of earlier ones."""
    if choice == NONE:
        return
    known = shown_outcomes(ctx.store.outcomes)
    for version_set, cases in work:
        outcomes = {case.id: known[version_set.key, case.id] for case in cases if (version_set.key, case.id) in known}
        waiting = {case.id: case for case in cases if is_wanted(case, outcomes.get(case.id), choice)}
        if waiting:
            locate(version_set, waiting, outcomes, ctx)
            shutil.rmtree(ctx.store.directory / WORK, ignore_errors=True)
    traced_location.run(work, VERDICTS[choice], shown_outcomes(ctx.store.outcomes), ctx)


def is_wanted(case: Case, outcome: Outcome | None, choice: str) -> bool:
    """Return whether a cell is to be located: its modules can be recorded, and it was not located before."""
    is_chosen = outcome is not None and outcome.verdict in VERDICTS[choice] - {Verdict.FAIL}
    return is_chosen and is_recordable(case) and outcome is not None and outcome.location is None


def is_recordable(case: Case) -> bool:
    """Return whether the reference has a counterpart of the modules that a case runs."""
    return case.options.flow not in OWN_CODE and not case.options.torch_compile


def shown_outcomes(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], Outcome]:
    """The outcome of each set and case that reports show: the last of each repeat, of repeats a wrong one."""
    last = {(each.set, each.case, each.repeat): each for each in outcomes}
    ordered = sorted(last.values(), key=lambda each: (each.verdict is Verdict.WRONG, each.repeat))
    return {(each.set, each.case): each for each in ordered}


def locate(version_set: VersionSet, cases: dict[str, Case], outcomes: dict[str, Outcome], ctx: RunContext) -> None:
    """Run cells of one set with recorded modules, and store their outcomes again with the location."""
    variables = {deviations.REQUESTED: "1"}
    for case, folder in rerun.job_folders(version_set, cases, ctx, suite=ctx.suite, variables=variables):
        if found := read(folder):
            ctx.store.append(outcomes[case].model_copy(update={"location": location(found)}))


def read(folder: Path) -> list[RankDeviations]:
    """What the ranks of a job measured, stage by stage."""
    return [RankDeviations.from_json(path.read_bytes()) for path in sorted(folder.glob(deviations.ANY_FILE))]


def location(ranks: Sequence[RankDeviations]) -> LocationRecord:
    """Where a cell deviates. Without a deviation, the curves are those of the first step on rank 0."""
    found = deviations.beginnings(ranks)
    first = min((each.step for rank in ranks for each in rank.measured), default=1)
    step, rank = (found[0].deviation.step, found[0].rank) if found else (first, 0)
    shown = [each for each in ranks if each.rank == rank]
    return LocationRecord(
        beginnings=tuple(map(record, found)),
        outputs=curve(shown, step, FORWARD),
        gradients=curve(shown, step, BACKWARD),
        uncompared=max((len(each.uncompared) for each in ranks), default=0),
    )


def curve(ranks: Sequence[RankDeviations], step: int, number: int) -> dict[str, float]:
    kind = {FORWARD: "output", BACKWARD: "gradient"}[number]
    return {name: rounded(off) for each in ranks for name, off in deviations.curve(each, step, kind).items()}


def record(beginning: Beginning) -> DeviationRecord:
    found = beginning.deviation
    return DeviationRecord(
        kind=found.kind,
        name=found.name,
        module=found.module,
        step=found.step,
        rank=beginning.rank,
        distance=rounded(found.distance),
        allowed=rounded(found.allowed),
        after=beginning.after,
    )


def rounded(number: float) -> float:
    """Three digits, so that a curve stays short."""
    return float(f"{number:.3g}")
