"""Builds the map from the wheels of an index, and adds releases to it.

Each release is read alone. What is stored of a name is the set of releases that have it, so that a release can be added
at any place, such as a patch of an older minor release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from packaging.version import Version

from matrix.api_map import store
from matrix.api_map.packages import MAPPED, SINCE
from matrix.api_map.reading.facts_cache import FactsCache
from matrix.api_map.reading.release_facts import read_release
from matrix.api_map.store import MappedRelease, PackageMap
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matrix.api_map.reading.index import PackageIndex, WheelFile

CACHE: Final = "api-map/facts.sqlite"  # below the cache folder


@dataclass(frozen=True, kw_only=True)
class Added:
    """A release that an update added, or why it could not be read."""

    package: str
    version: str
    problem: str = ""


def update(
    folder: Path,
    *,
    index: PackageIndex,
    cache: Path,
    packages: Sequence[str] = MAPPED,
    say: Callable[[str], None] = lambda _: None,
    keep: Callable[[WheelFile], bool] = lambda _: True,
) -> list[Added]:
    """Add the releases of the index that a map lacks; a folder without a map gets all of them.

    Args:
        folder: of the map.
        index: where the wheels are.
        cache: file in which facts of read files are kept.
        packages: those to update.
        say: prints progress.
        keep: selects releases.

    Raises:
        UserError: the index cannot be reached.
    """
    known = store.releases_of(folder) if (folder / store.RELEASES).exists() else {}
    added: list[Added] = []
    facts = FactsCache(cache)
    try:
        for package in packages:
            wheels = [each for each in index.releases(package, since=SINCE) if keep(each)]
            have = {each.version for each in known.get(package, ())}
            new = [each for each in wheels if each.version not in have]
            if not new:
                continue
            mapped = store.load(package, folder) if have else PackageMap(package=package)
            added += [add(mapped, wheel, index, facts, say) for wheel in new]
            known[package] = mapped.releases
            store.save(mapped, folder)
            store.save_releases(known, folder)
    finally:
        facts.close()
    return added


def add(
    mapped: PackageMap, wheel: WheelFile, index: PackageIndex, facts: FactsCache, say: Callable[[str], None]
) -> Added:
    """Add one release to the map of its package. A wheel that cannot be read is recorded with the reason."""
    place = sum(Version(each.version) < Version(wheel.version) for each in mapped.releases)
    if place < len(mapped.releases):
        mapped.names = {name: opened(bits, place) for name, bits in mapped.names.items()}
        mapped.uses = {use: opened(bits, place) for use, bits in mapped.uses.items()}
    problem, requires = "", tuple[str, ...]()
    try:
        with index.open(wheel) as opened_wheel:
            release = read_release(mapped.package, opened_wheel, facts)
        mark(mapped.names, release.names(), place)
        mark(mapped.uses, release.uses(), place)
        requires = release.requires
    except UserError as error:
        problem = str(error)
    mapped.releases.insert(
        place,
        MappedRelease(
            version=wheel.version,
            uploaded=wheel.uploaded,
            requires=requires,
            requires_python=wheel.requires_python,
            yanked=wheel.yanked,
            unreadable=problem,
        ),
    )
    say(f"{wheel.package} {wheel.version}: {problem or 'read'}")
    return Added(package=wheel.package, version=wheel.version, problem=problem)


def opened(bits: int, place: int) -> int:
    """Return a set of releases after a release was inserted at a place."""
    low = bits & ((1 << place) - 1)
    return low | (bits >> place) << (place + 1)


def mark(rows: dict[Any, int], found: Any, place: int) -> None:
    bit = 1 << place
    for each in found:
        rows[each] = rows.get(each, 0) | bit
