"""How near two version sets are. The sets of CPU and GPU results often differ, so each compared pair states it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED
from matrix.keys import CellKey, SetKey
from matrix.versions.sets import PACKAGES
from reports.answers.judgement.nearest_sets import public, without_build
from reports.results.comparison import Nearness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from packaging.version import Version

    from matrix.run.outcome import SetRecord
    from reports.results.grid import Grid

DEVICES: Final = {"cpu": "CPU", "cuda": "GPU", "cuda-gloo": "shared GPU"}


def near(cpu: SetRecord, gpu: SetRecord) -> Nearness | None:
    """Return how near two sets are; None if they differ in more than torch."""
    if cpu.lock and cpu.lock == gpu.lock:
        return Nearness.LOCK
    moved = {name for name in PACKAGES if release(cpu, name) != release(gpu, name)}
    if not moved:
        return Nearness.PINS
    return Nearness.TORCH if moved == {"torch"} else None


def nearby(columns: Iterable[SetRecord], gpu: SetRecord) -> Iterator[tuple[Nearness, SetRecord]]:
    """Yield the CPU sets near a GPU set, nearest first; sets that differ in torch are ordered by its release."""
    candidates = ((near(column, gpu), column) for column in columns)

    def distance(each: tuple[Nearness, SetRecord]) -> tuple[object, ...]:
        nearness, column = each
        is_other_set = str(SetKey.parse(gpu.key).without("torch")) != column.key
        return list(Nearness).index(nearness), torch_distance(column, gpu), is_other_set, column.key

    yield from sorted(((nearness, column) for nearness, column in candidates if nearness is not None), key=distance)


def red_elsewhere(cell: str, device: str, grids: Mapping[str, Grid]) -> Iterator[str]:
    """Yield where other devices show a green cell of a device red, on sets with its versions, as ends of a sentence."""
    key = CellKey.parse(cell)
    own = [column for column in grids[device].sets if column.key == key.set]
    for other, matrix in grids.items():
        for column in matrix.sets if own and other != device else ():
            nearness = near(own[0], column)
            if nearness is not None and matrix.verdicts.get((key.case, column.key)) in RED:
                yield f"red on the {DEVICES.get(other, other)} with {column.key} ({nearness.value})"


def release(column: SetRecord, name: str) -> str:
    return without_build(column.pins.get(name, ""))


def torch_release(column: SetRecord) -> Version:
    return public(release(column, "torch"))


def torch_distance(cpu: SetRecord, gpu: SetRecord) -> tuple[int, ...]:
    """Return the difference of the two releases of torch, per part of the version."""
    parts = (three_parts(torch_release(column).release) for column in (cpu, gpu))
    return tuple(abs(one - other) for one, other in zip(*parts, strict=True))


def three_parts(numbers: Sequence[int]) -> tuple[int, int, int]:
    major, minor, micro = (*numbers, 0, 0, 0)[:3]
    return major, minor, micro


def differs(cpu: SetRecord, gpu: SetRecord) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the differing versions of Python and the six packages, and the build of torch if its version is equal."""
    one, other = ({**column.pins, "Python": column.python} for column in (cpu, gpu))
    if one.get("torch") == other.get("torch"):
        one, other = ({**each, "build of torch": column.torch_backend} for each, column in ((one, cpu), (other, gpu)))
    yield from ((name, (one[name], other.get(name, ""))) for name in one if one[name] != other.get(name, ""))
