"""Loads the results of a run directory, or of a folder of published results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.errors import UserError
from matrix.run import store
from reports.results import stored_results
from reports.results.grid import grid
from reports.results.outcome_rows import whole

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.results.grid import Grid


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """A run with all its outcomes, and the grid of them. ``problems`` names the parts that could not be read."""

    record: RunRecord
    sets: tuple[SetRecord, ...]
    outcomes: tuple[Outcome, ...]
    matrix: Grid
    generated: datetime | None = None  # when published results were written
    problems: tuple[str, ...] = ()


def load(directory: Path) -> RunResults:
    """Read a run directory, or a folder of published results.

    Raises:
        UserError: the directory holds neither, or a newer ftmatrix wrote it.
    """
    published = None if (directory / store.RUN).exists() else stored_results.locate(directory)
    if published is not None:
        found = stored_results.read(published)
        if found is None:
            raise UserError(f"{published}: a table of an older version, without the run; give its run directory")
        return RunResults(
            record=found.record,
            sets=found.sets,
            outcomes=tuple(map(whole, found.outcomes)),
            matrix=found.grid(),
            generated=found.header.generated if found.header is not None else None,
        )
    stored = store.read_run(directory)
    return results(stored.record, stored.sets, stored.outcomes, problems=stored.problems)


def results(
    record: RunRecord, sets: Iterable[SetRecord], outcomes: Iterable[Outcome], *, problems: tuple[str, ...] = ()
) -> RunResults:
    """Return the results of a run with their grid.

    Raises:
        UserError: an outcome belongs to none of the sets.
    """
    sets, outcomes = tuple(sets), tuple(outcomes)
    matrix = grid(record, sets, outcomes)
    return RunResults(record=record, sets=sets, outcomes=outcomes, matrix=matrix, problems=problems)
