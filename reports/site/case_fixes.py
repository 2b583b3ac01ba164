"""The fixes of all red cells: those that a search proved, and green neighbours where nobody searched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cases import suite
from matrix.errors import UserError
from matrix.versions import sets as known_sets
from reports.answers.devices.nearness import red_elsewhere
from reports.answers.fixes import remedies
from reports.answers.fixes.green_neighbours import green_neighbour

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome
    from reports.answers.fixes.remedies import Remedy
    from reports.results.grid import Grid
    from reports.site.published_data import PublishedData


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFix:
    """A fix in words, with the green cell that shows it and the change as a diff of the user's files.

    It is ``proven`` if a search ran it twice and each of its changes is needed.
    """

    words: str
    proof: str
    green: str
    diff: str
    proven: bool
    device: str = ""
    against: tuple[str, ...] = ()  # where another device shows the green cell red

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The lines of the diff with their class."""
        classes = {"+": "plus", "-": "minus"}
        return [
            (classes.get(line[:1], "") if line[:3] not in ("+++", "---") else "", line)
            for line in self.diff.splitlines()
        ]


def fixes(published: PublishedData) -> dict[tuple[str, str, str], CellFix]:
    """Return the fix of each red cell that has one or was searched for, by device, case and set."""
    packaged = {each.key: each for each in known_sets.load()}
    found: dict[tuple[str, str, str], CellFix] = {}
    for device, grid in published.grids.items():
        stored = remedies.load(published.folder, device=device)
        columns = {each.key: each for each in grid.sets}
        for red in grid.red:
            same = red.set in packaged and packaged[red.set].pins == columns[red.set].pins
            fix = by_search(red, stored[red.cell], packaged, device) if red.cell in stored and same else None
            fix = fix or by_neighbour(red, grid, device)
            if fix is not None:
                against = tuple(red_elsewhere(fix.green, device, published.grids)) if fix.green else ()
                found[device, red.case, red.set] = replace(fix, against=against)
    return found


def by_search(red: Outcome, remedy: Remedy, packaged: dict[str, known_sets.VersionSet], device: str) -> CellFix | None:
    known = remedy.for_cell(red)
    try:
        diff = known.edit(red, packaged[red.set], suite.CASES)
    except UserError:  # a case that this version no longer declares
        diff = ""
    return CellFix(
        words=known.words, proof=known.proof, green=known.green, diff=diff, proven=bool(known.green), device=device
    )


def by_neighbour(red: Outcome, grid: Grid, device: str) -> CellFix | None:
    neighbour = green_neighbour(red, grid)
    if neighbour is None:
        return None
    columns = {each.key: each for each in grid.sets}
    return CellFix(
        words=neighbour.words,
        proof=neighbour.proof,
        green=neighbour.green,
        diff=neighbour.edit(red, columns[red.set]),
        proven=False,
        device=device,
    )
