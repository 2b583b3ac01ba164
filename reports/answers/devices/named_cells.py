"""The results on GPUs of the cells that known problems name for GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.errors import UserError
from reports.answers import knowledge
from reports.answers.devices.compare import CUDA
from reports.results.known_results import GpuResults

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from matrix.known.known_problems import Problem
    from matrix.run.outcome import RunRecord
    from reports.results.loading import RunResults


def stored(problems: Iterable[Problem], folder: Path) -> GpuResults | None:
    """Return the results of the GPU runs in a folder and below it; None if the problems name no cells for GPUs.

    Raises:
        UserError: there is no such run, or a file cannot be read.
    """
    named = (cells for each in problems for cells in (*each.red, *each.green))
    cases = frozenset(cells.case for cells in named if cells.device == CUDA)
    if not cases:
        return None
    runs = [knowledge.restricted(run, cases) for run in knowledge.stored(folder) if run.device == CUDA]
    if not runs:
        raise UserError(f"{folder}: holds no results measured on GPUs")
    drivers = {
        (column.key, run.record.hardware): driver_of(run.record)
        for run in runs
        for column in run.sets
        if driver_of(run.record)
    }
    return GpuResults(matrix=knowledge.grid_of(runs), drivers=drivers)


def of_run(results: RunResults) -> GpuResults:
    """Return the results of one run on GPUs."""
    record = results.record
    return GpuResults(
        matrix=results.matrix, drivers={(column.key, record.hardware): driver_of(record) for column in results.sets}
    )


def driver_of(record: RunRecord) -> str:
    return str(record.facts.get("driver") or "")
