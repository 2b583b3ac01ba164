"""Locates where cells begin to differ from the same cells on a stack on which they pass, without a reference.

This names a module for a wrong call of an API, whose modules the reference does not know, for a cell that raises, and
for a wrong cell whose modules are all within their tolerances.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cases.checks import function_traces, module_traces
from cases.checks.module_traces import ANY_FILE, ERROR, REQUESTED, ModuleTrace
from cases.space.verdict import RED, Verdict
from matrix.run import rerun
from matrix.run.execute import Suite
from matrix.run.outcome import LocationRecord
from matrix.run.store import WORK
from matrix.run.traces.function_comparison import first_function
from matrix.run.traces.module_comparison import first_difference

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.context import RunContext
    from matrix.run.outcome import DeviationRecord, Outcome
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet

    Shown = Mapping[tuple[str, str], Outcome]

MODULE: Final = "cases.checks.traced_suite"  # runs the cases of the ordinary suite
UNCHANGED: Final = "the unchanged stack"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A red cell, and the same case where it passes: on ``right``, which may be the same set."""

    case: Case
    outcome: Outcome
    right: VersionSet
    counterpart: Case


def run(work: Work, verdicts: Collection[Verdict], shown: Shown, ctx: RunContext) -> None:
    """Locate the cells with these verdicts that nothing has located, and store their outcomes again."""
    if ctx.suite.unchanged is None and ctx.suite.module != Suite.module:
        return
    for version_set, cases in work:
        pairs = [
            pair
            for case in cases
            if is_wanted(case, found := shown.get((version_set.key, case.id)), verdicts) and found is not None
            if (pair := paired(case, found, version_set, work, shown, ctx.suite)) is not None
        ]
        if pairs:
            compare(version_set, pairs, ctx)
            shutil.rmtree(ctx.store.directory / WORK, ignore_errors=True)


def is_wanted(case: Case, outcome: Outcome | None, verdicts: Collection[Verdict]) -> bool:
    """Return whether a cell is red, and neither the reference nor an earlier comparison named a module."""
    if outcome is None or outcome.verdict not in verdicts or outcome.verdict not in RED:
        return False
    is_open = outcome.location is None or not (outcome.location.beginnings or outcome.location.against)
    return is_open and case.options.flow != "script" and not case.options.torch_compile


def paired(
    case: Case, outcome: Outcome, version_set: VersionSet, work: Work, shown: Shown, suite: Suite
) -> Pair | None:
    """The cell with the unchanged stack; otherwise with the nearest set of the run on which it passes, if any does."""
    if suite.unchanged is not None:
        return Pair(case=case, outcome=outcome, right=version_set, counterpart=suite.unchanged(case))
    place = next(number for number, (each, _) in enumerate(work) if each.key == version_set.key)
    passing = [
        (abs(number - place), number, each)
        for number, (each, _) in enumerate(work)
        if (found := shown.get((each.key, case.id))) is not None and found.verdict is Verdict.PASS
    ]
    if not passing:
        return None
    _, _, nearest = min(passing, key=lambda each: each[:2])
    return Pair(case=case, outcome=outcome, right=nearest, counterpart=case)


def compare(version_set: VersionSet, pairs: Sequence[Pair], ctx: RunContext) -> None:
    """Run the cells of one set and their counterparts, and store where each begins to differ."""
    cells: dict[str, tuple[VersionSet, dict[str, Case]]] = {}
    for pair in pairs:
        for each, case in ((pair.right, pair.counterpart), (version_set, pair.case)):
            cells.setdefault(each.key, (each, {}))[1][case.id] = case
    found = {(key, name): traces for key, (each, cases) in cells.items() for name, traces in traced(each, cases, ctx)}
    for pair in pairs:
        ours = found.get((version_set.key, pair.case.id))
        right = found.get((pair.right.key, pair.counterpart.id))
        if ours and right:
            against = "" if pair.right.key == version_set.key else pair.right.key
            if (location := located(ours, right, against)) is not None:
                ctx.store.append(pair.outcome.model_copy(update={"location": location}))


def located(found: Sequence[ModuleTrace], right: Sequence[ModuleTrace], against: str) -> LocationRecord | None:
    """Where traces begin to differ from those of a version set, empty for the same one.

    None if nothing differs in traces that were cut, because what differs may come later.
    """
    function = None if against else first_function(found, right)
    difference = first_difference(found, right, same_set=not against)
    first = joined(function, difference)
    if first is None and any(map(is_cut, (*found, *right))):
        return None
    return LocationRecord(beginnings=() if first is None else (first,), against=against or UNCHANGED)


def is_cut(trace: ModuleTrace) -> bool:
    return len(trace.events) >= module_traces.MOST or len(trace.functions) >= function_traces.MOST


def joined(function: DeviationRecord | None, difference: DeviationRecord | None) -> DeviationRecord | None:
    """The function that does something else, with its module; outside of modules, with the first module that differs.

    Not with a module that raises: the record would say that the function raises in it.
    """
    if function is None or difference is None or function.module or difference.kind == ERROR:
        return function or difference
    return difference.model_copy(update={"function": function.function})


def traced(
    version_set: VersionSet, cases: Mapping[str, Case], ctx: RunContext
) -> Iterable[tuple[str, list[ModuleTrace]]]:
    suite = ctx.suite if ctx.suite.unchanged is not None else replace(ctx.suite, module=MODULE)
    for name, folder in rerun.job_folders(version_set, cases, ctx, suite=suite, variables={REQUESTED: "1"}):
        yield name, read(folder)


def read(folder: Path) -> list[ModuleTrace]:
    return [ModuleTrace.from_json(path.read_bytes()) for path in sorted(folder.glob(ANY_FILE))]
