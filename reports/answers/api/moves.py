"""Finds the smallest move of one package after which a name is there, or is no longer used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from matrix.api_map.holding import unmet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.api_map.query import ApiMap, Having
    from reports.answers.api.users import NameUser


@dataclass(frozen=True, kw_only=True)
class Move:
    """One package at another version.

    Attributes:
        package: the package.
        version: its new version.
        why: what the version is good for, in words.
        steps: minor releases between the two versions.
        unmet: requirements that this set of versions does not meet.
        measured: the measurement that imported these versions without an error; empty if there is none.
    """

    package: str
    version: str
    why: str
    steps: int
    unmet: tuple[str, ...] = ()
    measured: str = ""

    @property
    def typed(self) -> str:
        return f"{self.package}=={self.version}"

    def as_json(self) -> dict[str, Any]:
        return {"pin": self.typed, "why": self.why, "unmet": list(self.unmet), "measured": self.measured}


def moves(
    found: Having,
    users: Sequence[NameUser],
    versions: Mapping[str, str],
    api: ApiMap,
    *,
    overrides: bool = False,
    has: str = "it has the name",
) -> Iterator[Move]:
    """Yield moves of the packages whose versions are known: those that requirements admit first, then the smallest.

    ``overrides``: releases without the name are wanted. ``has`` says what a release with it is good for.
    """
    having = set(found.versions)
    admitted = set(api.versions(found.package)) - having if overrides else having
    why = "it does not have the parameter yet" if overrides else has
    candidates = list(nearest(found.package, admitted, versions, api, why))
    for user in users:
        using = within(user.ranges, api.versions(user.package))
        without = set(api.versions(user.package)) - using
        candidates += nearest(user.package, without, versions, api, f"it {negated(user.how)} it")
    yield from sorted(candidates, key=lambda move: (bool(move.unmet), move.steps))


def negated(verb: str) -> str:
    return {
        "imports": "does not import",
        "uses": "does not use",
        "passes": "does not pass",
        "states": "does not state",
    }[verb]


def within(ranges: Sequence[tuple[str, str]], versions: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for first, last in ranges:
        found.update(versions[versions.index(first) : versions.index(last) + 1])
    return found


def nearest(package: str, admitted: set[str], versions: Mapping[str, str], api: ApiMap, why: str) -> Iterator[Move]:
    """Yield the nearest admitted release below the installed one, and the one above."""
    place = api.place(package, versions.get(package, ""))
    if place is None:
        return
    rows = api.releases[package]
    usable = [number for number, each in enumerate(rows) if each.version in admitted and not each.yanked]
    below = [number for number in usable if number < place]
    above = [number for number in usable if number > place]
    for number in (*below[-1:], *above[:1]):
        version = rows[number].version
        changed = {**versions, package: version}
        yield Move(
            package=package,
            version=version,
            why=why,
            steps=minors_between(api, package, *sorted((place, number))),
            unmet=tuple(broken(changed, api, package)),
        )


def minors_between(api: ApiMap, package: str, first: int, last: int) -> int:
    rows = api.releases[package][first : last + 1]
    return len({Version(each.version).release[:2] for each in rows}) - 1


def broken(versions: Mapping[str, str], api: ApiMap, moved: str) -> list[str]:
    """Return the requirements that a set of versions breaks and that concern the moved package."""
    view = api.at(versions)
    found = []
    for package, place in view.places.items():
        requires = api.releases[package][place].requires
        about = requires if package == moved else [each for each in requires if each.startswith(moved)]
        found += [f"{package} requires {each}" for each in unmet(about, view, api)]
    return found
