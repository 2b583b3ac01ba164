"""Runs the cells of a fix search in the pipeline, except cells with a known result."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.keys import CellKey, EnvironmentKey, moved_key
from matrix.run import pipeline
from matrix.versions import locking
from matrix.versions.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.context import RunContext
    from matrix.run.outcome import Outcome
    from matrix.search.finder import Verdicts
    from matrix.versions.sets import VersionSet

CANNOT = frozenset({Verdict.SKIP, Verdict.BLOCKED})


@dataclass(kw_only=True)
class PipelineRunner:
    """A ``CellRunner`` that stores its outcomes in one run.

    ``before`` are outcomes of other runs; they count if lock, case code and hardware are the same.
    """

    ctx: RunContext
    table: Sequence[VersionSet]
    before: Iterable[Outcome] = ()
    other_runs: dict[str, list[Outcome]] = field(init=False)
    by_repeat: dict[str, dict[int, Outcome]] = field(default_factory=lambda: defaultdict(dict))
    read: int = 0  # number of outcomes of this run that ``by_repeat`` has
    digests: dict[str, str] = field(default_factory=dict)
    derived: dict[str, VersionSet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.other_runs = by_cell(self.before)

    def seen(self, version_set: VersionSet, case: Case) -> Verdicts:
        """See ``CellRunner``."""
        verdicts = (each.verdict for each in self.outcomes(version_set, case))
        return tuple(verdict for verdict in verdicts if verdict is not Verdict.LOST)

    def modules(self, version_set: VersionSet, case: Case) -> str:
        """See ``CellRunner``."""
        return next((each.modules for each in reversed(self.outcomes(version_set, case)) if each.modules), "")

    def outcomes(self, version_set: VersionSet, case: Case) -> list[Outcome]:
        """Each run of the cell with this lock, case code and hardware, without duplicates of published runs."""
        cell = str(CellKey(version_set.key, case.id))
        runs = (*self.other_runs.get(cell, ()), *self.repeats(cell).values())
        return list({each.started: each for each in runs if self.is_same(version_set, each)}.values())

    def hint(self, version_set: VersionSet, case: Case) -> bool:
        """See ``CellRunner``."""
        known = self.other_runs.get(str(CellKey(version_set.key, case.id)), ())
        return Verdict.PASS in {each.verdict for each in known} or Verdict.PASS in self.seen(version_set, case)

    def measure(self, version_set: VersionSet, times: Mapping[Case, int]) -> None:
        """See ``CellRunner``."""
        by_repeats: dict[int, list[Case]] = defaultdict(list)
        for case, count in times.items():
            known = self.seen(version_set, case)
            if len(known) < count and not set(known) & CANNOT:
                repeats_so_far = self.repeats(str(CellKey(version_set.key, case.id)))
                by_repeats[len(repeats_so_far) + count - len(known)].append(case)
        for repeats, cases in by_repeats.items():
            self.run(version_set, cases, repeats)

    def run(self, version_set: VersionSet, cases: Sequence[Case], repeats: int) -> None:
        ctx = self.ctx
        planned = (str(CellKey(version_set.key, case.id)) for case in cases)
        record = ctx.store.record
        ctx.store.replan(record.model_copy(update={"planned": tuple(dict.fromkeys((*record.planned, *planned)))}))
        off_grid = tuple(case for case in cases if case.id not in ctx.suite.cases)
        ctx.say(f"{version_set.key}: {counted(len(cases), 'cell')}")
        pipeline.run(
            [(version_set, cases)],
            replace(
                ctx, suite=replace(ctx.suite, added=off_grid), repeats=repeats, lock_folder=self.folder(version_set)
            ),
        )

    def moved(self, base: VersionSet, pins: Mapping[str, str]) -> VersionSet:
        """See ``CellRunner``."""
        new_pins = {**base.pins, **pins}
        equal = (each for each in self.table if dict(each.pins) == new_pins and each.extras == base.extras)
        known = next((each for each in equal if each.python == base.python), None)
        if known is not None:
            return known
        if self.ctx.packed is not None:
            raise UserError(f"{moved_key(base.key, pins)}: not packed; leave --offline out to resolve it")
        key = moved_key(base.key, pins)
        if key not in self.derived:
            self.derived[key] = locking.with_pins(key, pins, base=base, uv=self.ctx.uv)
        return self.derived[key]

    def repeats(self, cell: str) -> dict[int, Outcome]:
        """The last attempt of each repeat of a cell in this run."""
        outcomes = self.ctx.store.outcomes
        for each in outcomes[self.read :]:
            self.by_repeat[each.cell][each.repeat] = each
        self.read = len(outcomes)
        return self.by_repeat.get(cell, {})

    def is_same(self, version_set: VersionSet, outcome: Outcome) -> bool:
        ctx = self.ctx
        same_environment = (outcome.lock, outcome.hardware) == (self.environment(version_set), ctx.hardware)
        return same_environment and ctx.suite.is_current(outcome)

    def environment(self, version_set: VersionSet) -> str:
        """The key of the set's environment; empty if the set cannot be resolved."""
        if version_set.key not in self.digests:
            lock = pipeline.lock_of(version_set, replace(self.ctx, lock_folder=self.folder(version_set)))
            name = self.ctx.backend.name
            self.digests[version_set.key] = str(EnvironmentKey(lock.digest, name)) if isinstance(lock, Lock) else ""
        return self.digests[version_set.key]

    def folder(self, version_set: VersionSet) -> Path:
        """The folder of a set's lock: next to the table, or in the run for a set that the search made."""
        derived = version_set.key not in {each.key for each in self.table}
        return self.ctx.store.directory / pipeline.LOCKS if derived else self.ctx.lock_folder


def by_cell(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    grouped: dict[str, list[Outcome]] = defaultdict(list)
    for each in outcomes:
        grouped[each.cell].append(each)
    return grouped
