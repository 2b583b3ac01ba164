"""Repeats the red cells of a run for ``ftmatrix diff --repeat``, in a run of its own inside the run's directory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cases.space.plural import counted
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.run import request, resumption, store
from matrix.run.request import RunRequest
from reports.answers.diff.sides import REPEATS
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from matrix.run.progress import Progress
    from matrix.run.timings import Work


def repeat(
    directory: Path,
    times: int,
    *,
    watcher: Callable[[int], Progress],
    say: Callable[[str], None],
    options: RunRequest | None = None,
    cells: Collection[str] | None = None,
) -> None:
    """Run red cells of a run again, ``times`` times; repeats of an interrupted or earlier call count.

    Args:
        directory: the run.
        times: the number of repeats.
        watcher: makes the progress for a number of cells.
        say: prints a line.
        options: of the new runs; the device, the build and replaced packages are those of the run.
        cells: the red cells to repeat; all by default.

    Raises:
        UserError: the directory is no run directory, or a cell can no longer be run.
    """
    if not (directory / store.RUN).exists():
        raise UserError(f"{directory} is no run directory, so its cells cannot be repeated; leave --repeat out")
    run_request, work = prepared(directory, times, say, options or RunRequest(), cells)
    if work:
        planned = sum(len(cases) for _, cases in work) * times
        request.run(run_request, work=work, watcher=watcher(planned), say=say)


def prepared(
    directory: Path, times: int, say: Callable[[str], None], options: RunRequest, cells: Collection[str] | None
) -> tuple[RunRequest, Work]:
    """Return the request and the work that repeats red cells of a run on its device, with its build of torch."""
    run, folder = load(directory), directory / REPEATS
    run_request = replace(
        resumption.request_of_record(run.record, options),
        out=folder,
        resume=(folder / store.RUN).exists(),
        repeats=times,
        cold_sample=0,
    )
    red = [each for each in run.matrix.red if cells is None or each.cell in cells]
    current = [each.cell for each in red if run_request.suite.is_current(each)]
    if stale := len(red) - len(current):
        say(f"{counted(stale, 'red cell')} ran with other case code, so repeats would not count; run them again")
    ordered = sorted(current, key=lambda cell: CellKey.parse(cell).set)
    record = run.record.model_copy(update={"planned": tuple(ordered)})
    return run_request, resumption.work_of_record(record, run_request)
