"""Runs the cells of a night slice by slice: the base set first, then each candidate, while time is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.environments.environment import cache_folder
from matrix.nightly.candidate_sets import NIGHT_SETS
from matrix.nightly.slices import fitting, slices
from matrix.run import request as runs
from matrix.run import store, timings
from matrix.versions import locks
from reports.commands.nights.base_set import take_over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.nightly.slices import Clock, Slice
    from matrix.run.progress import Progress
    from matrix.run.request import RunRequest
    from matrix.versions.sets import VersionSet
    from reports.commands.nights.base_set import BaseSet

CELLS_SHARE: Final = 0.6  # of the time; the rest is for repeats and bisections


@dataclass(frozen=True, kw_only=True)
class NightCells:
    """The runs of a night.

    Attributes:
        request: the options of its runs.
        directory: the directory of the night.
        base: the base set.
        base_run: the directory of the base set's run, which later nights continue.
        candidates: the sets to measure.
        moved: packages that moved in any of them.
        clock: the time budget.
        watcher: returns the display of the progress for a number of cells.
        say: prints remarks.
    """

    request: RunRequest
    directory: Path
    base: BaseSet
    base_run: Path
    candidates: Sequence[VersionSet]
    moved: Sequence[str]
    clock: Clock
    watcher: Callable[[int], Progress]
    say: Callable[[str], None]

    def run(self, cases: Sequence[Case]) -> str:
        """Measure as many cells as the time allows; return a sentence about those that it did not, if any."""
        sets = (self.base.lock.version_set, *self.candidates)
        self.begin_base_run()
        left_out = 0
        chosen: tuple[Case, ...] = ()
        for each in slices(sets, cases, self.moved):
            is_base = each.version_set.key == self.base.lock.version_set.key
            if is_base:  # what fits is decided once for all sets, so that every cell has its counterpart
                chosen = self.fitting_cases(each, sets=len(sets))
            if not self.clock.left(CELLS_SHARE):
                chosen = ()
            left_out += len(each.cases) - len(chosen)
            if chosen:
                self.measure(replace(each, cases=chosen), is_base=is_base)
        return f"The time did not suffice for {counted(left_out, 'cell')}." if left_out else ""

    def fitting_cases(self, tier: Slice, *, sets: int) -> tuple[Case, ...]:
        past = timings.read(cache_folder(), self.request.resolved_device)
        seconds = self.clock.left(CELLS_SHARE) / sets
        return fitting(tier.cases, past, workers=self.request.worker_count, seconds=seconds)

    def measure(self, part: Slice, *, is_base: bool) -> None:
        directory = self.base_run if is_base else self.directory
        wish = replace(self.request, out=directory, resume=(directory / store.RUN).exists())
        planned = len(part.cases)
        runs.run(wish, work=[(part.version_set, part.cases)], watcher=self.watcher(planned), say=self.say)

    def begin_base_run(self) -> None:
        """Store the lock beside the base set's run, and the accepted outcomes in it."""
        locks.write(self.base.lock, folder=self.base_run / "locks")
        if self.base.outcomes:
            wish = replace(self.request, out=self.base_run, resume=(self.base_run / store.RUN).exists())
            opened = runs.open_store(wish, [])
            try:
                take_over(self.base, opened)
            finally:
                opened.close()


def night_request(request: RunRequest, directory: Path) -> RunRequest:
    """Return the options for runs of a night's own sets."""
    return replace(request, out=directory, versions=directory / NIGHT_SETS, repeats=1, cold_sample=0)
