"""From the name of a cell to what was measured of it, and to the versions that it ran with."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from packaging.version import Version

from cases.space.renamed import current_cell
from cases.space.verdict import RED
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.versions import locks, sets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.outcome import Outcome, SetRecord
    from reports.results.grid import Grid

LOOSE = 0.5  # how much alike a name has to be to be offered: names of cells share long parts


@dataclass(frozen=True, kw_only=True)
class Pins:
    """What a script asks for. ``versions`` are by distribution: the whole lock's, or those of the six packages."""

    python: str
    versions: Mapping[str, str]

    @property
    def six(self) -> dict[str, str]:
        return {name: self.versions[name] for name in sets.PACKAGES if name in self.versions}


def outcome_of(cell: str, matrix: Grid) -> Outcome:
    """What is known of ``SET__CASE``.

    Raises:
        UserError: nothing; red cells of a like name are offered.
    """
    try:
        version_set, case = CellKey.parse(current_cell(cell))
    except ValueError:
        raise UserError(f"{cell!r} is no cell: give SET__CASE, e.g. {offered(cell, matrix)}") from None
    found = matrix.lookup(case, version_set)
    if found is not None:
        return found
    if any(each.key == version_set for each in matrix.sets) and case in matrix.cases:
        raise UserError(f"{cell} was not run; red are e.g. {offered(cell, matrix)}")
    raise UserError(f"no result of a cell {cell!r}; did you mean {offered(cell, matrix)}?")


def offered(cell: str, matrix: Grid) -> str:
    """Red cells of like names; if nothing is alike, those that come first."""
    red = [outcome.cell for outcome in matrix.outcomes if outcome.verdict in RED]
    return " or ".join(get_close_matches(cell, red, n=3, cutoff=LOOSE) or red[:2])


def pins_of(outcome: Outcome, matrix: Grid) -> Pins:
    """The versions that the cell was measured with.

    Raises:
        UserError: the set's lock was made again since.
    """
    version_set = next((each for each in sets.load() if each.key == outcome.set), None)
    lock = None if version_set is None else locks.read(version_set)
    if version_set is None or lock is None:
        return host_pins(next(each for each in matrix.sets if each.key == outcome.set))
    if not outcome.lock.startswith(lock.digest):
        raise UserError(f"{outcome.cell} was measured with another lock of {outcome.set}: run the cell again first")
    return Pins(python=version_set.python, versions=lock.versions)


def host_pins(column: SetRecord) -> Pins:
    """Of a set without a packaged lock, such as one that was laid over a host's torch, whose build no index has."""
    versions = {name: Version(version).public for name, version in column.pins.items()}
    return Pins(python=column.python, versions=versions)
