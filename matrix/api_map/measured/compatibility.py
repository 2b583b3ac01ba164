"""Tells which releases can be installed together, by the requirements that they declare.

A set of releases is a whole number: bit i is the release at place i of a package. Only releases of the map count.
"""

from __future__ import annotations

import re
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from packaging.specifiers import SpecifierSet

from matrix.api_map.store import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from matrix.api_map.query import ApiMap
    from matrix.api_map.store import MappedRelease

NAME: Final = re.compile(r"\w+")


@cache
def bounds(release: MappedRelease) -> Mapping[str, tuple[str, ...]]:
    """Return the bounds of a release's requirements by package; a requirement without one has an empty bound."""
    found: dict[str, tuple[str, ...]] = {}
    for each in release.requires:
        name = NAME.match(each)
        if name is not None:
            found[name[0]] = (*found.get(name[0], ()), each[name.end() :])
    return found


@cache
def admits(bound: str, version: str) -> bool:
    return SpecifierSet(bound).contains(version, prereleases=True)


def places(releases: int) -> Iterator[int]:
    """Yield the places of a set of releases, the oldest first."""
    for first, last in ranges(releases):
        yield from range(first, last + 1)


class Compatibility:
    """Sets of releases that meet each other's requirements. ``usable`` tells if a release can be installed at all."""

    def __init__(self, api: ApiMap, usable: Callable[[str, str], bool] = lambda _package, _version: True) -> None:
        self.api = api
        self.usable = usable
        self.fitting: dict[tuple[str, int, str], int] = {}
        self.reached: dict[tuple[str, int, str], int] = {}
        self.every: dict[str, int] = {}

    def all_of(self, name: str) -> int:
        """Return the releases of a package that are not yanked, and can be read and installed."""
        if name not in self.every:
            self.every[name] = sum(
                1 << place
                for place, each in enumerate(self.api.releases[name])
                if not (each.yanked or each.unreadable) and self.usable(name, each.version)
            )
        return self.every[name]

    def fitting_with(self, user: str, place: int, name: str) -> int:
        """Return the releases of a package that one release of another package admits, and that admit it."""
        key = user, place, name
        if key not in self.fitting:
            release = self.api.releases[user][place]
            mine = bounds(release).get(name, ())
            self.fitting[key] = sum(
                1 << other
                for other in places(self.all_of(name))
                if all(admits(each, self.api.releases[name][other].version) for each in mine)
                and all(admits(each, release.version) for each in bounds(self.api.releases[name][other]).get(user, ()))
            )
        return self.fitting[key]

    def possible(self, given: Mapping[str, str], names: Collection[str]) -> dict[str, int]:
        """Return the releases of each package that can be in an installation with some given ones.

        Each release that is left has, in each other package, one that it fits with (arc consistency): an empty set
        proves that nothing can be installed with the given releases.
        """
        found = {name: self.all_of(name) for name in names}
        found |= {name: self.bit(name, version) for name, version in given.items()}
        changed = True
        while changed:
            changed = False
            for name in found:
                for other in (each for each in found if each != name):
                    reachable = self.reachable(other, found[other], name)
                    if found[name] & ~reachable:
                        found[name] &= reachable
                        changed = True
        return found

    def reachable(self, user: str, releases: int, name: str) -> int:
        """Return the releases of a package that fit with any of some releases of another package."""
        key = user, releases, name
        if key not in self.reached:
            fitting = (self.fitting_with(user, place, name) for place in places(releases))
            self.reached[key] = reduce(or_, fitting, 0)
        return self.reached[key]

    def bit(self, name: str, version: str) -> int:
        place = self.api.place(name, version)
        if place is None:
            raise KeyError(f"{name} {version}")
        return 1 << place

    def conflict(self, given: Mapping[str, str]) -> str:
        """Return a package of which no release can be installed with the given ones; empty if none was found.

        Packages are left out of which the map has no release for one of the given ones alone: it would be older than
        the map.
        """
        outside = {each for one in given.items() for each in self.unmapped(*one)}
        names = set(given)
        while True:
            found = self.possible(given, names)
            if not all(found.values()):
                return next(name for name, left in found.items() if not left)
            required = self.required(found)
            if required - outside <= names:
                return ""
            names |= required - outside

    def required(self, found: Mapping[str, int]) -> set[str]:
        """Return the packages that every release of one of the sets requires."""
        needed: set[str] = set()
        for name, releases in found.items():
            each_needs = [set(bounds(self.api.releases[name][place])) for place in places(releases)]
            needed |= set.intersection(*each_needs)
        return needed & set(self.api.releases)

    def unmapped(self, name: str, version: str) -> list[str]:
        """Return the packages that a release requires and of which the map has no release that it admits."""
        place = self.bit(name, version).bit_length() - 1
        needed = bounds(self.api.releases[name][place])
        return [each for each in needed if each in self.api.releases and not self.fitting_with(name, place, each)]
