"""Finds green cells a few settings away from a red cell whose fix was not searched for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cases.space.case import Case
from cases.space.options import OWN_CODE, IllegalError, Options
from cases.space.verdict import Verdict
from matrix.search import neighbours
from matrix.search.fixes import Change
from reports.answers.scripts.edits import Stack, change_text, diff

if TYPE_CHECKING:
    from matrix.run.outcome import Outcome, SetRecord
    from reports.results.grid import Grid

SAVED_UNDER = "saved_under"  # names the set that saved the adapter; stored next to the options of a case


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenNeighbour:
    """A green cell of the same set that differs in settings only; empty if there is none.

    It is not a proven fix: the cell was not repeated, and its changes were not minimised.
    """

    changes: tuple[Change, ...] = ()
    shown: Outcome | None = None

    @property
    def green(self) -> str:
        return self.shown.cell if self.shown else ""

    @property
    def words(self) -> str:
        if not self.changes:
            return "not searched for; no cell that differs only in settings is green on this set"
        return f"not searched for; green with other settings: {', '.join(map(change_text, self.changes))}"

    @property
    def proof(self) -> str:
        if self.shown is None:
            return ""
        return f"{self.green}, green in these results on {self.shown.hardware}, {self.shown.started:%Y-%m-%d}"

    def edit(self, red: Outcome, column: SetRecord) -> str:
        """Return the change as a diff of the user's files; empty if there is none."""
        if self.shown is None:
            return ""
        pins = {"python": column.python, **column.pins}
        before, after = (Options().but(**each.options) for each in (red, self.shown))
        return diff(*(Stack(pins=pins, options=options, set=column.key) for options in (before, after)))


def green_neighbour(red: Outcome, matrix: Grid) -> GreenNeighbour | None:
    """Return the nearest green neighbour of a red cell; None for a case with its own code, which has no settings."""
    try:
        start = Options().but(**{name: value for name, value in red.options.items() if name != SAVED_UNDER})
    except IllegalError:  # a newer version measured it, with options that this version does not know
        return None
    if start.flow in OWN_CODE:
        return None
    for case, changes in neighbouring_cases(start):
        outcome = matrix.lookup(case, red.set)
        if outcome is not None and outcome.verdict is Verdict.PASS and (outcome.case, outcome.set) not in matrix.flaky:
            return GreenNeighbour(changes=changes, shown=outcome)
    return GreenNeighbour()


@cache
def neighbouring_cases(start: Options) -> tuple[tuple[str, tuple[Change, ...]], ...]:
    """Return the ids of the cases that differ in settings only, the nearest first, each with the changes.

    The cells of a case on several version sets share the result.
    """
    return tuple(
        (
            Case("", "", neighbour).id,
            tuple(Change(name=name, old=getattr(start, name), new=new) for name, new in options),
        )
        for radius in range(1, neighbours.MAX_RADIUS + 1)
        for changes in neighbours.settings(start, radius)
        if (neighbour := neighbours.moved(start, changes)) is not None and (options := changes.items())
    )
