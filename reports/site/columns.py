"""The columns of the matrix: each a stack of versions, as the CPU and the GPU runs had it.

A GPU run often has the packages of a dated set with the torch of its host. Such a set shares the column of the CPU's
set that differs in torch alone, and the head of the column shows both versions. A set that finds no partner has a
column of its own, so nothing is hidden by the pairing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from matrix.versions.sets import PACKAGES
from reports.answers.devices.nearness import nearby, release
from reports.results.comparison import Nearness

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.run.outcome import SetRecord
    from reports.results.grid import Grid

IN_HEAD: Final = ("torch", "transformers", "peft", "bitsandbytes")
MANY: Final = 50  # cells; a set with fewer was measured for single questions, and the matrix hides it at first
CPU, CUDA = "cpu", "cuda"


@dataclass(frozen=True, kw_only=True)
class MatrixColumn:
    """A stack of versions. ``sets`` has the version set by device; ``near`` tells how near the two are."""

    key: str
    sets: Mapping[str, SetRecord]
    cells: int
    near: Nearness | None = None
    is_main: bool = True  # whether the matrix shows it at first: it has many cells, or all have few

    @cached_property
    def first(self) -> SetRecord:
        return next(iter(self.sets.values()))

    @property
    def as_of(self) -> str:
        return self.first.as_of

    @property
    def is_of_pair(self) -> bool:
        """Whether it is of a CPU or of GPUs with one for each rank, whose halves the squares have."""
        return any(device in (CPU, CUDA) for device in self.sets)

    def versions(self, name: str) -> dict[str, str]:
        """The version of a package by device, or once under an empty name if it is the same."""
        by_device = {device: release(record, name) for device, record in self.sets.items()}
        return {"": next(iter(by_device.values()))} if len({*by_device.values()}) == 1 else by_device

    def others(self) -> Iterator[str]:
        """Packages that the head of the matrix does not show."""
        yield from (name for name in PACKAGES if name not in IN_HEAD)


def columns_of(grids: Mapping[str, Grid]) -> tuple[MatrixColumn, ...]:
    """Return the columns of all devices, oldest first."""
    cells = {(device, column.key): 0 for device, grid in grids.items() for column in grid.sets}
    for device, grid in grids.items():
        for _, key in grid.verdicts:
            cells[device, key] += 1
    cpu, gpu = (grids[device].sets if device in grids else () for device in (CPU, CUDA))
    partners = paired(cpu, gpu)
    others = [(device, column) for device, grid in grids.items() if device not in (CPU, CUDA) for column in grid.sets]
    columns = [with_partner(column, partners.get(column.key), cells) for column in cpu]
    taken = {partner.key for _, partner in partners.values()}
    known = {column.key for column in columns}
    columns += [
        MatrixColumn(key=unused(column.key, device, known), sets={device: column}, cells=cells[device, column.key])
        for device, column in [*((CUDA, each) for each in gpu if each.key not in taken), *others]
    ]
    shown = [each for each in columns if each.is_of_pair] or columns
    least = min(MANY, max((each.cells for each in shown), default=0))
    marked = (replace(each, is_main=each in shown and each.cells >= least) for each in columns)
    return tuple(sorted(marked, key=lambda each: (each.as_of, each.key)))


def unused(key: str, device: str, known: set[str]) -> str:
    return f"{key}@{device}" if key in known else key


def with_partner(
    column: SetRecord, partner: tuple[Nearness, SetRecord] | None, cells: Mapping[tuple[str, str], int]
) -> MatrixColumn:
    near, other = partner or (None, None)
    sets = {CPU: column} if other is None else {CPU: column, CUDA: other}
    count = max(cells[device, record.key] for device, record in sets.items())
    return MatrixColumn(key=column.key, sets=sets, cells=count, near=near)


def paired(cpu: tuple[SetRecord, ...], gpu: tuple[SetRecord, ...]) -> dict[str, tuple[Nearness, SetRecord]]:
    """Pair each GPU set with the nearest CPU set that no nearer one has; the nearest pairs come first."""
    order = list(Nearness)
    every = [
        (order.index(near), rank, other.key, column, other, near)
        for other in gpu
        for rank, (near, column) in enumerate(nearby(cpu, other))
    ]
    pairs: dict[str, tuple[Nearness, SetRecord]] = {}
    taken: set[str] = set()
    for _, _, _, column, other, near in sorted(every, key=lambda each: (each[0], each[1], each[3].key, each[2])):
        if column.key not in pairs and other.key not in taken:
            pairs[column.key] = near, other
            taken.add(other.key)
    return pairs
