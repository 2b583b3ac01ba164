"""Finds the outcome of a cell by its name, and the versions that the cell ran with."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from packaging.version import Version

from cases.space.renamed import current_cell
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.versions import locks, sets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.outcome import Outcome, SetRecord
    from reports.results.grid import Grid

LOOSE = 0.5  # similarity of a suggested name; names of cells share long parts


@dataclass(frozen=True, kw_only=True)
class PinnedVersions:
    """The versions that a script requires, by distribution: those of a lock, or of the six packages."""

    python: str
    versions: Mapping[str, str]

    @property
    def six(self) -> dict[str, str]:
        return {name: self.versions[name] for name in sets.PACKAGES if name in self.versions}


def outcome_of(cell: str, matrix: Grid) -> Outcome:
    """The outcome of ``SET__CASE``, which may be a former name.

    Raises:
        UserError: no run has this cell. The message suggests red cells with similar names.
    """
    try:
        version_set, case = CellKey.parse(current_cell(cell))
    except ValueError:
        raise UserError(
            f"{cell!r} is not the name of a cell; use SET__CASE, e.g. {suggestions(cell, matrix)}"
        ) from None
    outcome = matrix.lookup(case, version_set)
    if outcome is not None:
        return outcome
    if any(each.key == version_set for each in matrix.sets) and case in matrix.cases:
        raise UserError(f"{cell} was not run; choose a red cell, e.g. {suggestions(cell, matrix)}")
    raise UserError(f"no result of a cell {cell!r}; did you mean {suggestions(cell, matrix)}?")


def suggestions(cell: str, matrix: Grid) -> str:
    """Red cells with similar names, or the first two if there are none."""
    red = [outcome.cell for outcome in matrix.red]
    return " or ".join(get_close_matches(cell, red, n=3, cutoff=LOOSE) or red[:2])


def pins_of(outcome: Outcome, matrix: Grid) -> PinnedVersions:
    """The versions that the cell ran with.

    Raises:
        UserError: the set has a new lock since.
    """
    version_set = next((each for each in sets.load() if each.key == outcome.set), None)
    lock = None if version_set is None else locks.read(version_set)
    if version_set is None or lock is None:
        return host_pins(next(each for each in matrix.sets if each.key == outcome.set))
    if not outcome.lock.startswith(lock.digest):
        raise UserError(f"{outcome.cell} was measured with another lock of {outcome.set}; run the cell again")
    return PinnedVersions(python=version_set.python, versions=lock.versions)


def host_pins(column: SetRecord) -> PinnedVersions:
    """The public versions of a set without a packaged lock, such as one over a host's own build of torch."""
    versions = {name: Version(version).public for name, version in column.pins.items()}
    return PinnedVersions(python=column.python, versions=versions)
