"""Compares the stored map with the releases themselves: reads their wheels again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.api_map import store
from matrix.api_map.packages import MAPPED, SINCE
from matrix.api_map.reading.facts_cache import FactsCache
from matrix.api_map.reading.release_facts import read_release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from matrix.api_map.reading.index import PackageIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleRelease:
    """A release whose stored rows differ from its wheel: rows that only one of them has."""

    package: str
    version: str
    only_stored: int
    only_read: int


def verify(
    folder: Path,
    *,
    index: PackageIndex,
    cache: Path,
    packages: Sequence[str] = MAPPED,
    newest: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> list[StaleRelease]:
    """Read the newest releases of each package again and compare each with the stored rows.

    Raises:
        UserError: the map or a wheel cannot be read.
    """
    facts = FactsCache(cache)
    found = []
    try:
        for package in packages:
            mapped = store.load(package, folder)
            wheels = {each.version: each for each in index.releases(package, since=SINCE)}
            for place in range(len(mapped.releases) - 1, max(-1, len(mapped.releases) - 1 - newest), -1):
                version = mapped.releases[place].version
                if version in wheels and not mapped.releases[place].unreadable:
                    with index.open(wheels[version]) as wheel:
                        release = read_release(package, wheel, facts)
                    read = {*release.names(), *release.uses()}
                    stored = set(at_place(mapped, place))
                    say(f"{package} {version}: {'as stored' if read == stored else 'differs'}")
                    if read != stored:
                        found.append(
                            StaleRelease(
                                package=package,
                                version=version,
                                only_stored=len(stored - read),
                                only_read=len(read - stored),
                            )
                        )
    finally:
        facts.close()
    return found


def at_place(mapped: store.PackageMap, place: int) -> Iterator[tuple[str, ...]]:
    for rows in (mapped.names, mapped.uses):
        yield from (row for row, bits in rows.items() if bits >> place & 1)
