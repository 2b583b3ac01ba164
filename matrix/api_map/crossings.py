"""Finds, for each pair of packages, the releases of which one uses what the other does not have.

A name that no release of a package has is made at run time, and says nothing. A use under a version check counts only
against the releases that the check admits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NoReturn

from matrix.api_map.holding import CONDITION, least_version, meets
from matrix.api_map.packages import PACKAGES
from matrix.api_map.reading.conditions import FUNCTION, TRY
from matrix.api_map.reading.uses import CALL, CHECKED, IMPORT, LIBRARY, MODULE, STAR
from matrix.api_map.store import ranges
from matrix.api_map.view import Presence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.api_map.query import ApiMap
    from matrix.api_map.tables import UseRow


class Breaks(Enum):
    """When a missing name breaks something."""

    AT_IMPORT = "at import"  # of the package
    AT_MODULE = "when its module is imported"  # of a part that is imported on first use
    AT_USE = "when it is used"  # in a function
    IN_BRANCH = "in a branch"  # under a condition that the map cannot tell
    HANDLED = "handled"  # the code expects it

    def __bool__(self) -> NoReturn:
        raise TypeError("compare a Breaks by name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A use of a range of releases, and the releases of the other package that lack the name. Places are inclusive."""

    user: str
    module: str
    target: str
    kind: str
    breaks: Breaks
    conditions: str
    first: int
    last: int
    lacking: int  # bits

    @property
    def provider(self) -> str:
        return self.target.partition(".")[0].partition("(")[0]


class Crossings:
    """The crossings of a map, computed package by package."""

    def __init__(self, api: ApiMap) -> None:
        self.api = api
        self.lacks: dict[str, int] = {}

    def lacking(self, target: str) -> int:
        """Return the releases that certainly lack a name which others have, as bits."""
        if target not in self.lacks:
            provider = target.partition(".")[0].partition("(")[0]
            states = [
                self.api.as_of(provider, place).presence(target) for place in range(len(self.api.releases[provider]))
            ]
            missing = sum(1 << place for place, state in enumerate(states) if state is Presence.MISSING)
            self.lacks[target] = missing if Presence.THERE in states else 0
        return self.lacks[target]

    def providers_of(self, user: str) -> set[str]:
        """Return the other packages that any release of a package uses."""
        tables = self.api.tables[user]
        roots = {
            row.target.partition(".")[0].partition("(")[0]
            for module in tables.modules()
            for row in tables.uses(module)
            if row.kind in {MODULE, IMPORT}
        }
        return roots & set(self.api.packages) - {user}

    def of_user(self, user: str, providers: Sequence[str] = PACKAGES) -> Iterator[Crossing]:
        """Yield the crossings of a package's releases with those of others, module by module."""
        roots = eager_modules_by_release(self.api, user)
        tables = self.api.tables[user]
        for module in tables.modules():
            for row in tables.uses(module):
                provider = row.target.partition(".")[0].partition("(")[0]
                if provider == user or provider not in providers or row.kind in {CALL, CHECKED, LIBRARY, STAR}:
                    continue
                lacking = self.lacking(row.target)
                lacking &= ~self.excluded(row, provider, user) if lacking else 0
                if lacking:
                    eager = roots.get(module, 0) & bits_of(row.first, row.last)
                    yield from self.split(user, module, row, lacking, eager)

    def split(self, user: str, module: str, row: UseRow, lacking: int, eager: int) -> Iterator[Crossing]:
        """Yield a use by when it breaks: a module may be imported with its package in some releases only."""
        later = bits_of(row.first, row.last) & ~eager
        for bits, with_package in ((eager, True), (later, False)):
            for first, last in ranges(bits):
                yield Crossing(
                    user=user,
                    module=module,
                    target=row.target,
                    kind=row.kind,
                    breaks=moment(row.conditions, with_package=with_package),
                    conditions=row.conditions,
                    first=first,
                    last=last,
                    lacking=lacking,
                )

    def excluded(self, row: UseRow, provider: str, user: str) -> int:
        """Return the releases of a package for which a version check skips the code, as bits."""
        bits = 0
        for each in row.conditions.split(";"):
            found = CONDITION.fullmatch(each.removeprefix("!"))
            bound = found["bound"] if found else ""
            if found and found["name"] == provider and found["kind"] == "has" and not bound:
                bound = least_version(self.api.as_of(user, row.last), user, provider)
            if found and found["name"] == provider and bound:
                for place, release in enumerate(self.api.releases[provider]):
                    holds = meets(release.version, bound)
                    if holds is not None and holds is each.startswith("!"):
                        bits |= 1 << place
            elif found and found["name"] == provider and found["kind"] == "has" and each.startswith("!"):
                return -1  # the package is there
        return bits


KNOWN_CONDITIONS: Final = ("has:", "ver:")


def moment(conditions: str, *, with_package: bool) -> Breaks:
    texts = [each for each in conditions.split(";") if each]
    if TRY in texts:
        return Breaks.HANDLED
    if any(not is_certain(each) for each in texts):
        return Breaks.IN_BRANCH
    if FUNCTION in texts:
        return Breaks.AT_USE
    return Breaks.AT_IMPORT if with_package else Breaks.AT_MODULE


def is_certain(condition: str) -> bool:
    """Tell if a condition is a function's body, or a check of a package of the map, which is installed."""
    if condition == FUNCTION:
        return True
    found = CONDITION.fullmatch(condition)
    return found is not None and found["name"] in PACKAGES


def eager_modules_by_release(api: ApiMap, package: str) -> Mapping[str, int]:
    """Return for each module the releases that run it when the package is imported, as bits."""
    found: dict[str, int] = {}
    for place in range(len(api.releases[package])):
        for module in eager_modules(api, package, place, package):
            found[module] = found.get(module, 0) | 1 << place
    return found


def eager_modules(api: ApiMap, package: str, place: int, start: str) -> set[str]:
    """Return the modules of a package that importing one of them runs, with it."""
    tables = api.tables[package]
    known = set(tables.modules())
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module in seen or module not in known:
            continue
        seen.add(module)
        waiting += [parent for parent in parents(module) if parent not in seen]
        for row in tables.uses(module):
            if row.first <= place <= row.last and runs_module(row, package):
                waiting += [row.target, row.target.rpartition(".")[0]]
    return seen


def runs_module(row: UseRow, package: str) -> bool:
    """Tell if a use runs a module of a package as soon as its own module runs."""
    conditions = [each for each in row.conditions.split(";") if each]
    return (
        row.kind in {MODULE, IMPORT, STAR}
        and row.target.startswith(package)
        and all(is_certain(each) and each != FUNCTION for each in conditions)
    )


def parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def bits_of(first: int, last: int) -> int:
    return ((1 << (last - first + 1)) - 1) << first
