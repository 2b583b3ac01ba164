"""Computes the status of a version set for a query: green, green with a setting, red or unknown.

* **green**: the cells with the named options and plain values elsewhere ran, and none is red. Where the query names
  several values of an option, each of them occurs in a green cell.
* **green with a setting**: not green as above, but a cell that differs only in settings, or in which of several plain
  or named values it has, is green. ``avoid`` lists the red plain cells.
* **red**: no cell is green, and a plain one is red; or the set has no plain cell, and every case that is the plainest
  green one on another set is red here. ``untried`` lists such cases that did not run here.
* **unknown**: everything else. Skipped, blocked, lost and missing cells show nothing; a cell whose repeats disagree is
  not green.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from cases.space.verdict import RED, Verdict
from matrix.versions.sets import PACKAGES
from reports.answers.support.matching import points, ways
from reports.answers.support.query import PRECISION, check
from reports.results.wording import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cases.space.options import Value
    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.judgement.known_errors import MeasuredErrors
    from reports.answers.support.matching import MatchingCase, Point
    from reports.answers.support.query import Query
    from reports.results.grid import Grid

NOT_RUN = "not run"
CPU = "cpu"


class SupportStatus(StrEnum):
    """The status of a version set for a query, best first."""

    GREEN = "green"
    SETTING = "green with a setting"
    RED = "red"
    UNKNOWN = "unknown"


GOOD = (SupportStatus.GREEN, SupportStatus.SETTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenCase:
    """A green case and the settings that it needs; none if the set is green without any."""

    case: str
    settings: Mapping[str, Value]

    @property
    def words(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.settings.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """The status of a set for a query, with its green cases (plainest first), and red cases to avoid."""

    query: Query
    set: str
    status: SupportStatus
    greens: tuple[GreenCase, ...] = ()
    avoid: tuple[str, ...] = ()
    reds: tuple[str, ...] = ()
    untried: tuple[GreenCase, ...] = ()
    reason: str = ""

    @property
    def good(self) -> bool:
        return self.status in GOOD

    @property
    def proof(self) -> tuple[str, ...]:
        """The cases that prove the status: all plain ones, else the plainest green or every red one."""
        if self.status is SupportStatus.GREEN:
            return tuple(green.case for green in self.greens if not green.settings)
        return tuple(green.case for green in self.greens[:1]) if self.good else self.reds


class SupportIndex:
    """Looks up the status of a grid's version sets for queries, and the known errors that jobs meet on them."""

    def __init__(self, matrix: Grid, *, known: MeasuredErrors | None = None, device: str = CPU) -> None:
        self.matrix = matrix
        self.known = known
        self.device = device
        self.points: tuple[Point, ...] = points(matrix)
        self.blocked = matrix.blocked

    def ways(self, query: Query) -> tuple[MatchingCase, ...]:
        """Return the cases that match a query; none if no such case was measured.

        Raises:
            UserError: no legal case can match.
        """
        possible = ways(query, self.points)
        if not possible:
            check(query)
        return possible

    def statuses(self, query: Query) -> tuple[QueryStatus, ...]:
        """Return the status of every set, in the grid's order.

        Raises:
            UserError: no legal case can match.
        """
        possible = self.ways(query)
        greens = {column.key: self.greens(query, column.key, possible) for column in self.sets}
        plainest = {each[0].case: each[0] for each in greens.values() if each}
        return tuple(self.on(query, key, possible, each, plainest) for key, each in greens.items())

    @property
    def sets(self) -> Sequence[SetRecord]:
        return self.matrix.sets

    def verdict(self, case: str, version_set: str) -> Verdict | None:
        """Return None if the cell did not run, or its set could not be installed."""
        return self.matrix.verdicts.get((case, version_set))

    def greens(self, query: Query, key: str, possible: Sequence[MatchingCase]) -> tuple[GreenCase, ...]:
        """Return the green cases of a set, plainest first."""
        passed = [way for way in possible if self.verdict(way.case, key) is Verdict.PASS]
        red = [way for way in self.reds(key, possible) if not way.settings]
        plain = [way for way in passed if not way.settings]
        without_settings = not red and all(
            {way.chosen.get(name, values[0]) for way in plain} >= set(values) for name, values in query.named.items()
        )
        cases = (
            GreenCase(case=w.case, settings={} if without_settings and w in plain else needed_settings(query, w, red))
            for w in passed
        )
        return tuple(sorted(cases, key=simplicity))

    def reds(self, key: str, possible: Iterable[MatchingCase]) -> list[MatchingCase]:
        return [way for way in possible if self.verdict(way.case, key) in RED]

    def on(
        self,
        query: Query,
        key: str,
        possible: Sequence[MatchingCase],
        greens: tuple[GreenCase, ...],
        plainest: Mapping[str, GreenCase],
    ) -> QueryStatus:
        red = self.reds(key, possible)
        plain_red = tuple(way.case for way in red if not way.settings)
        untried = tuple(green for case, green in plainest.items() if self.verdict(case, key) in (None, Verdict.LOST))
        if greens:
            status = SupportStatus.SETTING if greens[0].settings else SupportStatus.GREEN
        else:
            status = SupportStatus.RED if plain_red or (red and not untried) else SupportStatus.UNKNOWN
        return QueryStatus(
            query=query,
            set=key,
            status=status,
            greens=greens,
            avoid=plain_red,
            reds=tuple(way.case for way in red),
            untried=() if greens else untried,
            reason=self.why_unknown(possible, key) if status is SupportStatus.UNKNOWN else "",
        )

    def why_unknown(self, possible: Iterable[MatchingCase], key: str) -> str:
        stated_outcomes = [outcome for way in possible if (outcome := self.matrix.lookup(way.case, key)) is not None]
        silent = [outcome for outcome in stated_outcomes if outcome.verdict not in RED]
        if silent:
            return f"{silent[0].verdict.value}: {first_line(silent[0].reason)}"
        if not stated_outcomes:
            return f"blocked: {first_line(self.blocked[key])}" if key in self.blocked else NOT_RUN
        return f"red in {len(stated_outcomes)} unusual case{'s' * (len(stated_outcomes) > 1)}; no usual case ran"

    def outcome(self, case: str, version_set: str) -> Outcome:
        """Return the outcome of a cell that ran."""
        return self.matrix.cells[case, version_set]


def needed_settings(query: Query, way: MatchingCase, plain_red: Sequence[MatchingCase]) -> dict[str, Value]:
    """Return the settings of a case, its choice among named values, and what distinguishes it from red plain cells."""
    rows = {
        name: value
        for name, value in way.chosen.items()
        if name in query.named or (plain_red and all(red.chosen.get(name) != value for red in plain_red))
    }
    if not rows and not way.settings:
        rows = dict(way.chosen)  # each value also occurs in a red cell, so their combination makes the difference
    return {**rows, **way.settings}


def simplicity(green: GreenCase) -> tuple[int, int, str]:
    """Sort key: few settings first, and changes of precision or optimiser last, because users rarely accept them."""
    return len(green.settings), sum(name in (*PRECISION, "optim") for name in green.settings), green.case


def newest_first(sets: Iterable[SetRecord]) -> list[SetRecord]:
    """Sort by date, then by the versions of the packages."""
    return sorted(sets, key=lambda column: (column.as_of, released(column.pins)), reverse=True)


def released(pins: Mapping[str, str]) -> tuple[Any, ...]:
    return tuple(Version(pins[name]) for name in PACKAGES if name in pins)
