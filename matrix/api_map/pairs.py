"""Summarises crossings by pair of packages: with which releases of one a release of the other breaks, and why."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from matrix.api_map.crossings import Breaks, Crossings
from matrix.api_map.packages import PACKAGES
from matrix.api_map.store import ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.api_map.crossings import Crossing
    from matrix.api_map.query import ApiMap

COUNTED: Final = (Breaks.AT_IMPORT, Breaks.AT_MODULE, Breaks.AT_USE)  # the worst first
USERS: Final = ("trl", "peft", "accelerate", "bitsandbytes", "transformers")
LEFT_OUT: Final = frozenset({"torch"})  # most of its names are made at run time, and few are removed


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRange:
    """Releases of a provider with which a release of a user breaks: first and last version, and an example."""

    breaks: Breaks
    first: str
    last: str
    target: str
    module: str


@dataclass(frozen=True, kw_only=True)
class UserRelease:
    """The last patch of a minor release, and where it breaks with another package; nothing: with no release."""

    version: str
    broken: tuple[BrokenRange, ...]


def pair_table(api: ApiMap, found: Iterable[Crossing], user: str, provider: str) -> list[UserRelease]:
    """Return, for each minor release of a package, the releases of another one with which it breaks."""
    crossings = [each for each in found if each.provider == provider and each.breaks in COUNTED]
    rows = []
    for place in last_patches(api.versions(user)):
        mine = [each for each in crossings if each.first <= place <= each.last]
        broken = tuple(broken_ranges(mine, api.versions(provider)))
        rows.append(UserRelease(version=api.versions(user)[place], broken=broken))
    return rows


def broken_ranges(crossings: Sequence[Crossing], versions: Sequence[str]) -> Iterator[BrokenRange]:
    """Yield ranges by when they break. A release that breaks at import counts there only."""
    counted = 0
    for breaks in COUNTED:
        by_place: dict[int, Crossing] = {}
        for each in (each for each in crossings if each.breaks is breaks):
            for first, last in ranges(each.lacking & ~counted):
                for place in range(first, last + 1):
                    by_place.setdefault(place, each)
        bits = sum(1 << place for place in by_place)
        for first, last in ranges(bits):
            example = by_place[first] if first else by_place[last]  # of the release next to the whole ones
            yield BrokenRange(
                breaks=breaks,
                first=versions[first],
                last=versions[last],
                target=example.target,
                module=example.module,
            )
        counted |= bits


def last_patches(versions: Sequence[str]) -> list[int]:
    """Return the places of the last patch of each minor release."""
    last: dict[tuple[int, ...], int] = {}
    for place, version in enumerate(versions):
        last[Version(version).release[:2]] = place
    return list(last.values())


def all_pairs(api: ApiMap) -> Mapping[tuple[str, str], list[UserRelease]]:
    """Return the table of each pair of packages of which one uses the other and breaks with some release."""
    crossings = Crossings(api)
    providers = [each for each in PACKAGES if each not in LEFT_OUT]
    tables: dict[tuple[str, str], list[UserRelease]] = {}
    for user in USERS:
        by_provider: dict[str, list[Crossing]] = defaultdict(list)
        for each in crossings.of_user(user, providers):
            by_provider[each.provider].append(each)
        for provider in providers:
            if by_provider[provider]:
                tables[user, provider] = pair_table(api, by_provider[provider], user, provider)
    return tables
