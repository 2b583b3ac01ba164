"""The page of the GPU columns: what the results of each version set on GPUs rest on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.versions import sets
from reports.answers.devices import own_locks
from reports.answers.devices.own_locks import CUDA
from reports.answers.fixes import remedies
from reports.results.outcome_rows import whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.answers.devices.own_locks import OwnLock
    from reports.results.outcome_rows import AnyOutcome
    from reports.site.published_data import PublishedData
    from reports.site.writer import SiteWriter


@dataclass(frozen=True, kw_only=True)
class GpuColumn:
    """A version set with results on GPUs. ``column`` is the key of its column of the matrix."""

    column: str
    basis: OwnLock
    is_own_lock: bool  # whether it is a dated set with exactly the packages of its lock


def columns(published: PublishedData) -> Iterator[GpuColumn]:
    """Yield the version sets of the matrix with results on GPUs, newest first.

    Raises:
        UserError: a file cannot be read.
    """
    grid = published.grids.get(CUDA)
    if grid is None:
        return
    rows: dict[str, list[AnyOutcome]] = {}
    for cell in grid.measured():
        rows.setdefault(cell[1], []).append(grid.rows[cell])
    explained = Counter(key for (device, _, key), cause in published.cause_of.items() if device == CUDA and cause)
    fixes = remedies.load(published.folder, device=CUDA)
    drivers = own_locks.drivers_by_set(published.runs)
    packaged = {each.key: each for each in sets.load()}
    for column in reversed(published.columns):
        record = column.sets.get(CUDA)
        if record is not None and record.key in rows:
            outcomes = [*map(whole, rows[record.key])]  # of one set at a time, because they take memory
            known = drivers.get(record.key, ())
            basis = own_locks.column(record, outcomes, known, explained[record.key], fixes)
            yield GpuColumn(column=column.key, basis=basis, is_own_lock=own_locks.has_own_lock(record, packaged))


def write(site: SiteWriter, published: PublishedData) -> None:
    site.page("gpus.html", "gpus.html.j2", gpus=[*columns(published)])
