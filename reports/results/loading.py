"""Loads the results of a run directory, or of a folder of published results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.run import store
from reports.results import document
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Iterable
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
    problems: tuple[str, ...] = ()


def load(directory: Path) -> RunResults:
    """Read a run directory, or a folder of published results.

    Raises:
        UserError: the directory holds neither, or a newer ftmatrix wrote it.
    """
    published = None if (directory / store.RUN).exists() else document.locate(directory)
    if published is not None:
        matrix = document.read(published)
        return RunResults(record=matrix.run, sets=matrix.sets, outcomes=matrix.cells, matrix=document.results(matrix))
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
