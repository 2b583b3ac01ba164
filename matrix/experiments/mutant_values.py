"""Tells which mutants that no cell notices change a value that a function of the stack takes, leaves or returns.

Equal compared numbers do not say whether a cell lacks a check or the mutant does nothing in it. The cell runs again
with the calls of all functions of the stack recorded, once with the mutant and twice without it: what differs between
two runs of the unchanged stack does not count.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Final

from cases.checks.module_traces import REQUESTED
from cases.injection.mutant_suite import VALUES, unchanged
from matrix.run import rerun, traced_location
from matrix.run.store import WORK
from matrix.run.traces.function_comparison import changed_function

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.context import RunContext
    from matrix.run.traces.function_comparison import Calls
    from matrix.versions.sets import VersionSet

FILE: Final = "changed_functions.jsonl"
MOST: Final = 3  # cells of each mutant: recording makes them several times as slow
GROUP: Final = 12  # cells whose recorded calls are in memory at once, for each cell that runs at once


def known(directory: Path) -> dict[str, str | None]:
    """For each mutated cell that was compared, the function with another value; see ``changed_function``."""
    path = directory / FILE
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # the last one is empty, or was cut
    return {row["case"]: row["function"] for row in map(json.loads, lines)}


def compare(version_set: VersionSet, cases: Sequence[Case], ctx: RunContext) -> None:
    """Compare these mutated cells with the unchanged stack, and add what they change to the file of the run."""
    group = GROUP * ctx.workers
    for start in range(0, len(cases), group):
        found = list(changes(version_set, cases[start : start + group], ctx))
        with (ctx.store.directory / FILE).open("a", encoding="utf-8") as sink:
            sink.writelines(f"{json.dumps({'case': case, 'function': function})}\n" for case, function in found)
        shutil.rmtree(ctx.store.directory / WORK, ignore_errors=True)
        ctx.say(f"{version_set.key}: values compared in {min(start + group, len(cases))} of {len(cases)} cells")


def changes(version_set: VersionSet, cases: Sequence[Case], ctx: RunContext) -> Iterator[tuple[str, str | None]]:
    clean = {each.id: each for each in map(unchanged, cases)}
    found = dict(recorded(version_set, {each.id: each for each in cases} | clean, ctx))
    again = dict(recorded(version_set, clean, ctx))
    for case in cases:
        name = unchanged(case).id
        if case.id in found and name in found and name in again:
            yield case.id, changed_function(found[case.id], found[name], again[name])


def recorded(version_set: VersionSet, cases: Mapping[str, Case], ctx: RunContext) -> Iterator[tuple[str, Calls]]:
    for name, folder in rerun.job_folders(version_set, cases, ctx, suite=ctx.suite, variables={REQUESTED: VALUES}):
        yield name, {(each.stage, each.rank): each.functions for each in traced_location.read(folder)}
