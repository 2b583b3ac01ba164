"""Runs the cells of a fix search in the pipeline; cells with a known result do not run again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.keys import CellKey, EnvironmentKey, moved_key
from matrix.run import pipeline
from matrix.versions import locking
from matrix.versions.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.outcome import Outcome
    from matrix.run.pipeline import RunContext
    from matrix.search.finder import Verdicts
    from matrix.versions.sets import VersionSet

CANNOT = frozenset({Verdict.SKIP, Verdict.BLOCKED})


@dataclass(kw_only=True)
class PipelineRunner:
    """``before`` are outcomes of other runs; those with this lock, case code and hardware count."""

    ctx: RunContext
    table: Sequence[VersionSet]
    before: Iterable[Outcome] = ()
    elsewhere: dict[str, list[Outcome]] = field(init=False)
    here: dict[str, dict[int, Outcome]] = field(default_factory=lambda: defaultdict(dict))
    read: int = 0  # outcomes of this run that ``here`` holds
    digests: dict[str, str] = field(default_factory=dict)
    derived: dict[str, VersionSet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.elsewhere = by_cell(self.before)

    def seen(self, version_set: VersionSet, case: Case) -> Verdicts:
        """See ``CellRunner``."""
        verdicts = (each.verdict for each in self.outcomes(version_set, case))
        return tuple(verdict for verdict in verdicts if verdict is not Verdict.LOST)

    def modules(self, version_set: VersionSet, case: Case) -> str:
        """See ``CellRunner``."""
        return next((each.modules for each in reversed(self.outcomes(version_set, case)) if each.modules), "")

    def outcomes(self, version_set: VersionSet, case: Case) -> list[Outcome]:
        """Each run of the cell under this lock, case code and hardware, once: a published run may be known twice."""
        cell = str(CellKey(version_set.key, case.id))
        runs = (*self.elsewhere.get(cell, ()), *self.repeats(cell).values())
        return list({each.started: each for each in runs if self.is_same(version_set, each)}.values())

    def hint(self, version_set: VersionSet, case: Case) -> bool:
        """See ``CellRunner``."""
        known = self.elsewhere.get(str(CellKey(version_set.key, case.id)), ())
        return Verdict.PASS in {each.verdict for each in known} or Verdict.PASS in self.seen(version_set, case)

    def measure(self, version_set: VersionSet, times: Mapping[Case, int]) -> None:
        """See ``CellRunner``."""
        by_repeats: dict[int, list[Case]] = defaultdict(list)
        for case, often in times.items():
            known = self.seen(version_set, case)
            if len(known) < often and not set(known) & CANNOT:
                here = self.repeats(str(CellKey(version_set.key, case.id)))
                by_repeats[len(here) + often - len(known)].append(case)
        for repeats, cases in by_repeats.items():
            self.run(version_set, cases, repeats)

    def run(self, version_set: VersionSet, cases: Sequence[Case], repeats: int) -> None:
        ctx = self.ctx
        planned = (str(CellKey(version_set.key, case.id)) for case in cases)
        record = ctx.store.record
        ctx.store.replan(record.model_copy(update={"planned": tuple(dict.fromkeys((*record.planned, *planned)))}))
        free = tuple(case for case in cases if case.id not in ctx.suite.cases)
        ctx.say(f"{version_set.key}: {counted(len(cases), 'cell')}")
        pipeline.run(
            [(version_set, cases)],
            replace(ctx, suite=replace(ctx.suite, added=free), repeats=repeats, lock_folder=self.folder(version_set)),
        )

    def moved(self, base: VersionSet, pins: Mapping[str, str]) -> VersionSet:
        """See ``CellRunner``."""
        wanted = {**base.pins, **pins}
        there = (each for each in self.table if dict(each.pins) == wanted and each.extras == base.extras)
        known = next((each for each in there if each.python == base.python), None)
        if known is not None:
            return known
        key = moved_key(base.key, pins)
        if key not in self.derived:
            self.derived[key] = locking.with_pins(key, pins, base=base, uv=self.ctx.uv)
        return self.derived[key]

    def repeats(self, cell: str) -> dict[int, Outcome]:
        """The last attempt of each repeat of a cell in this run."""
        outcomes = self.ctx.store.outcomes
        for each in outcomes[self.read :]:
            self.here[each.cell][each.repeat] = each
        self.read = len(outcomes)
        return self.here.get(cell, {})

    def is_same(self, version_set: VersionSet, outcome: Outcome) -> bool:
        ctx = self.ctx
        same_place = (outcome.lock, outcome.hardware) == (self.environment(version_set), ctx.hardware)
        return same_place and ctx.suite.is_current(outcome)

    def environment(self, version_set: VersionSet) -> str:
        """The lock and the build of torch; empty for a set that cannot be resolved."""
        if version_set.key not in self.digests:
            lock = locking.read_or_resolve(version_set, uv=self.ctx.uv, folder=self.folder(version_set))
            name = self.ctx.backend.name
            self.digests[version_set.key] = str(EnvironmentKey(lock.digest, name)) if isinstance(lock, Lock) else ""
        return self.digests[version_set.key]

    def folder(self, version_set: VersionSet) -> Path:
        """The folder of a set's lock: next to the table, or in the run for a set that the search made."""
        derived = version_set.key not in {each.key for each in self.table}
        return self.ctx.store.directory / "locks" if derived else self.ctx.lock_folder


def by_cell(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        found[each.cell].append(each)
    return found
