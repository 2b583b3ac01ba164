"""Runs cells once more with every module recorded, and stores the first that deviates from the reference."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from cases.runtime import deviations
from cases.runtime.deviations import BACKWARD, FORWARD, RankDeviations
from cases.space.options import OWN_CODE
from cases.space.verdict import Verdict
from matrix.evidence import Evidence
from matrix.run import pipeline
from matrix.run.execute import Bench
from matrix.run.outcome import DeviationRecord, LocationRecord
from matrix.run.store import WORK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from cases.runtime.deviations import Beginning
    from cases.space.case import Case
    from matrix.environments.environment import Environment
    from matrix.run.context import RunContext
    from matrix.run.outcome import Outcome
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet

NONE: Final = "none"
VERDICTS: Final = {"wrong": {Verdict.WRONG}, "all": {Verdict.WRONG, Verdict.PASS}, NONE: frozenset[Verdict]()}
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


def is_wanted(case: Case, outcome: Outcome | None, choice: str) -> bool:
    """Return whether a cell is to be located: its modules can be recorded, and it was not located before."""
    is_recorded = case.options.flow not in OWN_CODE and not case.options.torch_compile
    return is_recorded and outcome is not None and outcome.verdict in VERDICTS[choice] and outcome.location is None


def shown_outcomes(outcomes: Iterable[Outcome]) -> dict[tuple[str, str], Outcome]:
    """The outcome of each set and case that reports show: the last of each repeat, of repeats a wrong one."""
    last = {(each.set, each.case, each.repeat): each for each in outcomes}
    ordered = sorted(last.values(), key=lambda each: (each.verdict is Verdict.WRONG, each.repeat))
    return {(each.set, each.case): each for each in ordered}


def locate(version_set: VersionSet, cases: dict[str, Case], outcomes: dict[str, Outcome], ctx: RunContext) -> None:
    """Run cells of one set with recorded modules, and store their outcomes again with the location."""
    ctx.watcher.stage(version_set.key, "locating")
    prepared = pipeline.prepare(version_set, ctx)
    environment = prepared if isinstance(prepared, Evidence) else pipeline.install(prepared, ctx)
    if isinstance(environment, Evidence):
        ctx.say(f"{version_set.key}: no cell was located: {environment.reason}")
        return
    try:
        for case, found in recorded_cells(version_set, cases, environment, ctx):
            if found:
                ctx.store.append(outcomes[case].model_copy(update={"location": location(found)}))
    finally:
        environment.release()


def recorded_cells(
    version_set: VersionSet, cases: dict[str, Case], environment: Environment, ctx: RunContext
) -> Iterator[tuple[str, list[RankDeviations]]]:
    """Run the cells, and yield what the ranks of each measured as it ends."""
    bench = Bench(
        scratch=pipeline.new_folder(ctx.store.directory.absolute() / WORK, f"{version_set.key}-locate-"),
        device=ctx.device,
        workers=ctx.workers,
        suite=ctx.suite,
        limits=ctx.limits,
        cold=ctx.cold,
        more={**ctx.variables, deviations.REQUESTED: "1"},
    )
    sources = {name: str(pipeline.carried(ctx, each.source, each.begun)) for name, each in cases.items() if each.source}
    order = sorted(cases, key=lambda name: -cases[name].ranks)
    for report in bench.run(order, environment, sources=sources):
        if report.name in cases:
            yield report.name, read(bench.job_folder(report.name))


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
