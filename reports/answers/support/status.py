"""How a version set stands to a need: green as it is, green with a setting, red, or unknown.

* **green**: cells with what was named, and the plain values of the rest, ran, and none of them is red. Where several
  values of an option were named, each of them is in a green one.
* **green with a setting**: that is not so, but a cell that differs only in settings, or in which of several plain or
  named values it has, is green. The red plain ones are to be avoided.
* **red**: no cell is green, and a plain one is red; or there is no plain one, and every way that is the plainest green
  one on some other set was tried here. Such ways that were not run here are told: they are ``untried``.
* **unknown**: the rest. A skipped, blocked, lost or missing cell says nothing; one whose repeats disagree is not green.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from cases.space.verdict import RED, Verdict
from matrix.versions.sets import PACKAGES
from reports.answers.support.query import PRECISION, check, points, ways
from reports.results.wording import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cases.space.options import Value
    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.support.query import Need, Point, Way
    from reports.results.grid import Grid

NOT_RUN = "not run"


class Standing(StrEnum):
    """The better ones first."""

    GREEN = "green"
    SETTING = "green with a setting"
    RED = "red"
    UNKNOWN = "unknown"


GOOD = (Standing.GREEN, Standing.SETTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Green:
    """A green way, and what has to be set for it: nothing where the need is met as it is."""

    case: str
    settings: Mapping[str, Value]

    @property
    def words(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.settings.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How a need holds on a set: the green ways, the plainest first, the red ones to avoid, and why it is unknown."""

    need: Need
    set: str
    standing: Standing
    greens: tuple[Green, ...] = ()
    avoid: tuple[str, ...] = ()
    reds: tuple[str, ...] = ()
    untried: tuple[Green, ...] = ()
    reason: str = ""

    @property
    def good(self) -> bool:
        return self.standing in GOOD

    @property
    def proof(self) -> tuple[str, ...]:
        """The cases that show it: all plain ones where it holds as it is, else the plainest way."""
        if self.standing is Standing.GREEN:
            return tuple(green.case for green in self.greens if not green.settings)
        return tuple(green.case for green in self.greens[:1]) if self.good else self.reds


class Known:
    """What a grid says of needs. It reads the grid's cases once."""

    def __init__(self, matrix: Grid) -> None:
        self.matrix = matrix
        self.points: tuple[Point, ...] = points(matrix)
        self.blocked = matrix.blocked

    def ways(self, need: Need) -> tuple[Way, ...]:
        """The cases in which a need can be met; none is a need that was never measured.

        Raises:
            UserError: there can be no such case.
        """
        possible = ways(need, self.points)
        if not possible:
            check(need)
        return possible

    def held(self, need: Need) -> tuple[Held, ...]:
        """How it holds on every set, in the grid's order.

        Raises:
            UserError: there can be no such case.
        """
        possible = self.ways(need)
        greens = {column.key: self.greens(need, column.key, possible) for column in self.sets}
        plainest = {each[0].case: each[0] for each in greens.values() if each}
        return tuple(self.on(need, key, possible, each, plainest) for key, each in greens.items())

    @property
    def sets(self) -> Sequence[SetRecord]:
        return self.matrix.sets

    def verdict(self, case: str, version_set: str) -> Verdict | None:
        """None where nothing is known: not run, or the set could not be installed."""
        outcome = self.matrix.lookup(case, version_set)
        return None if outcome is None else outcome.verdict

    def greens(self, need: Need, key: str, possible: Sequence[Way]) -> tuple[Green, ...]:
        """The green ways of a set, the plainest first."""
        passed = [way for way in possible if self.verdict(way.case, key) is Verdict.PASS]
        red = [way for way in self.reds(key, possible) if not way.settings]
        plain = [way for way in passed if not way.settings]
        as_it_is = not red and all(
            {way.chosen.get(name, values[0]) for way in plain} >= set(values) for name, values in need.named.items()
        )
        made = (Green(case=w.case, settings={} if as_it_is and w in plain else to_set(need, w, red)) for w in passed)
        return tuple(sorted(made, key=simplicity))

    def reds(self, key: str, possible: Iterable[Way]) -> list[Way]:
        return [way for way in possible if self.verdict(way.case, key) in RED]

    def on(
        self, need: Need, key: str, possible: Sequence[Way], greens: tuple[Green, ...], plainest: Mapping[str, Green]
    ) -> Held:
        red = self.reds(key, possible)
        plain_red = tuple(way.case for way in red if not way.settings)
        untried = tuple(green for case, green in plainest.items() if self.verdict(case, key) in (None, Verdict.LOST))
        if greens:
            standing = Standing.SETTING if greens[0].settings else Standing.GREEN
        else:
            standing = Standing.RED if plain_red or (red and not untried) else Standing.UNKNOWN
        return Held(
            need=need,
            set=key,
            standing=standing,
            greens=greens,
            avoid=plain_red,
            reds=tuple(way.case for way in red),
            untried=() if greens else untried,
            reason=self.why_unknown(possible, key) if standing is Standing.UNKNOWN else "",
        )

    def why_unknown(self, possible: Iterable[Way], key: str) -> str:
        said = [outcome for way in possible if (outcome := self.matrix.lookup(way.case, key)) is not None]
        silent = [outcome for outcome in said if outcome.verdict not in RED]
        if silent:
            return f"{silent[0].verdict.value}: {first_line(silent[0].reason)}"
        if not said:
            return f"blocked: {first_line(self.blocked[key])}" if key in self.blocked else NOT_RUN
        return f"red in {len(said)} unusual way{'s' * (len(said) > 1)}, not run in a usual one"

    def outcome(self, case: str, version_set: str) -> Outcome:
        """Of a cell that ran."""
        return self.matrix.cells[case, version_set]


def to_set(need: Need, way: Way, plain_red: Sequence[Way]) -> dict[str, Value]:
    """The settings of a way; which of several named values it has; and what else tells it from the red plain cells."""
    told = {
        name: value
        for name, value in way.chosen.items()
        if name in need.named or (plain_red and all(red.chosen.get(name) != value for red in plain_red))
    }
    if not told and not way.settings:
        told = dict(way.chosen)  # every value by itself is also in a red cell: it is their combination
    return {**told, **way.settings}


def simplicity(green: Green) -> tuple[int, int, str]:
    """Few settings first, and of these the precision last: it is the hardest to give up."""
    return len(green.settings), sum(name in PRECISION for name in green.settings), green.case


def newest_first(sets: Iterable[SetRecord]) -> list[SetRecord]:
    """By date; of one date, the one with the newer packages."""
    return sorted(sets, key=lambda column: (column.as_of, released(column.pins)), reverse=True)


def released(pins: Mapping[str, str]) -> tuple[Any, ...]:
    return tuple(Version(pins[name]) for name in PACKAGES if name in pins)
