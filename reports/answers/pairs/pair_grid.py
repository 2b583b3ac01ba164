"""Every two minor releases of two packages: read from the map of the API, and measured by the import matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from matrix.api_map.crossings import Breaks
from matrix.api_map.packages import PACKAGES
from matrix.api_map.pairs import all_pairs, last_patches
from reports.answers.pairs.pair_answers import NOTHING_FOUND, READ, PairStatus, fails, measured_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.api_map.measured.import_results import MeasuredImports
    from matrix.api_map.pairs import BrokenRange, UserRelease
    from matrix.api_map.query import ApiMap

MOMENTS: Final[Mapping[Breaks, PairStatus]] = {
    Breaks.AT_IMPORT: PairStatus.AT_IMPORT,
    Breaks.AT_MODULE: PairStatus.AT_USE,
    Breaks.AT_USE: PairStatus.AT_USE,
}
SEVERITY: Final = (PairStatus.AT_IMPORT, PairStatus.AT_USE, PairStatus.IMPORTS, PairStatus.NOT_MEASURED)
Releases = tuple[str, str]  # one of each of the two packages


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """What happens to two releases, why, and what shows it."""

    status: PairStatus
    because: str = ""
    proof: str = READ
    missing: str = ""  # the name


@dataclass(frozen=True, kw_only=True)
class PairGrid:
    """The last patches of the minor releases of two packages, oldest first, with a cell for each two of them."""

    packages: tuple[str, str]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Mapping[Releases, GridCell]


def pair_grids(api: ApiMap, results: Iterable[MeasuredImports]) -> Iterator[PairGrid]:
    """Yield the grid of each two packages of which one uses the other."""
    tables = all_pairs(api)
    measured = by_releases(results)
    pairs = dict.fromkeys(ordered(user, provider) for user, provider in tables)
    for first, second in pairs:
        rows, columns = (
            tuple(api.versions(each)[place] for place in last_patches(api.versions(each))) for each in (first, second)
        )
        read: dict[Releases, GridCell] = {}
        for row, column, cell in broken_cells(tables.get((first, second), ()), columns, api.versions(second)):
            read[row, column] = cell
        for column, row, cell in broken_cells(tables.get((second, first), ()), rows, api.versions(first)):
            read[row, column] = worse(cell, read.get((row, column)))
        cells = {
            (row, column): with_measurements(
                read.get((row, column)), measured.get(((first, row), (second, column)), ()), (first, second)
            )
            for row in rows
            for column in columns
        }
        yield PairGrid(packages=(first, second), rows=rows, columns=columns, cells=cells)


def ordered(user: str, provider: str) -> tuple[str, str]:
    """Return two packages with the one that builds on the other first."""
    first, second = sorted((user, provider), key=PACKAGES.index, reverse=True)
    return (first, second) if first in {"trl", "peft", "accelerate", "bitsandbytes"} else (second, first)


def broken_cells(
    table: Iterable[UserRelease], providers: Sequence[str], versions: Sequence[str]
) -> Iterator[tuple[str, str, GridCell]]:
    """Yield the releases of a user and a provider that break together. ``versions`` are all of the provider's."""
    places = {version: place for place, version in enumerate(versions)}
    for release in table:
        for each in reversed(release.broken):  # the worst comes first, and is kept
            for provider in providers:
                if places[each.first] <= places[provider] <= places[each.last]:
                    yield release.version, provider, cell_of(each)


def cell_of(broken: BrokenRange) -> GridCell:
    verb = {
        Breaks.AT_IMPORT: "imports",
        Breaks.AT_MODULE: "is imported on first use, and takes",
        Breaks.AT_USE: "uses in a function",
    }[broken.breaks]
    because = f"{broken.module} {verb} {broken.target}: it is not there"
    return GridCell(status=MOMENTS[broken.breaks], because=because, missing=broken.target)


def worse(one: GridCell, other: GridCell | None) -> GridCell:
    return one if other is None or SEVERITY.index(one.status) < SEVERITY.index(other.status) else other


def by_releases(
    results: Iterable[MeasuredImports],
) -> dict[tuple[tuple[str, str], tuple[str, str]], list[MeasuredImports]]:
    """Return measured combinations by each two releases in them, in both orders."""
    found: dict[tuple[tuple[str, str], tuple[str, str]], list[MeasuredImports]] = {}
    for each in results:
        for one in each.versions.items():
            for other in each.versions.items():
                if one[0] != other[0]:
                    found.setdefault((one, other), []).append(each)
    return found


def with_measurements(read: GridCell | None, measured: Sequence[MeasuredImports], pair: tuple[str, str]) -> GridCell:
    """Return the cell of two releases: what was measured goes before what was read."""
    missing = read.missing if read is not None else ""
    works = next((each for each in measured if all(each.imports(name) is not False for name in pair)), None)
    if works is not None:
        if read is not None and read.status is not PairStatus.AT_IMPORT:
            return replace(read, proof=f"{READ}; the import was {measured_words(works)}")
        return GridCell(status=PairStatus.IMPORTS, proof=measured_words(works))
    failed = next((each for each in measured if fails(each, pair, missing)), None)
    if failed is not None:
        error = next(error for name in pair if (error := failed.errors.get(f"import {name}")))
        return GridCell(status=PairStatus.AT_IMPORT, because=error, proof=measured_words(failed))
    return read or GridCell(status=PairStatus.NOT_MEASURED, because=NOTHING_FOUND)
