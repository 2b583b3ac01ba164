"""Summarises pairs of packages: with which releases of one a release of the other was imported, breaks, and why.

What breaks is read from the releases; what was imported, or failed, is measured. Minor releases that the import matrix
does not have stay unmeasured, or cannot be installed together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Final, NoReturn

from packaging.version import Version

from matrix.api_map.crossings import Breaks, Crossings
from matrix.api_map.measured.compatibility import Compatibility
from matrix.api_map.measured.pair_evidence import IMPORTED, pair_evidence
from matrix.api_map.packages import PACKAGES
from matrix.api_map.store import ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.api_map.crossings import Crossing
    from matrix.api_map.measured.import_results import MeasuredImports
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


class PairMeasurement(Enum):
    """What was measured of a pair of minor releases."""

    IMPORTED = "imported"
    FAILED = "failed"
    EXCLUDED = "requirements exclude each other"  # of the last patches, and nothing was measured
    NONE = "not measured"

    def __bool__(self) -> NoReturn:
        raise TypeError("compare a PairMeasurement by name")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRange:
    """Consecutive minor releases of a provider, such as 4.41 to 4.45, with the same measurement."""

    measurement: PairMeasurement
    first: str
    last: str
    count: int


@dataclass(frozen=True, kw_only=True)
class UserRelease:
    """The last patch of a minor release, where it breaks with another package, and what was measured.

    ``measured`` covers each minor release of the other package once, in order.
    """

    version: str
    broken: tuple[BrokenRange, ...]
    measured: tuple[MeasuredRange, ...]


def pair_table(
    compatibility: Compatibility,
    found: Iterable[Crossing],
    user: str,
    provider: str,
    evidence: Mapping[tuple[str, str], str],
) -> list[UserRelease]:
    """Return, for each minor release of a package, the releases of another one with which it was imported or breaks.

    ``evidence`` is what was measured of releases of the two packages.
    """
    api = compatibility.api
    crossings = [each for each in found if each.provider == provider and each.breaks in COUNTED]
    by_minor = measurements(evidence)
    providers = {minor(api.versions(provider)[place]): place for place in last_patches(api.versions(provider))}
    rows = []
    for place in last_patches(api.versions(user)):
        version = api.versions(user)[place]
        mine = [each for each in crossings if each.first <= place <= each.last]
        states = [
            by_minor[minor(version), each]
            if (minor(version), each) in by_minor
            else unmeasured(compatibility, {user: version, provider: api.versions(provider)[last]})
            for each, last in providers.items()
        ]
        rows.append(
            UserRelease(
                version=version,
                broken=tuple(broken_ranges(mine, api.versions(provider))),
                measured=tuple(measured_ranges(list(providers), states)),
            )
        )
    return rows


def measurements(evidence: Mapping[tuple[str, str], str]) -> Mapping[tuple[str, str], PairMeasurement]:
    """Return what was measured by minor releases: failed, if any of their patches failed."""
    found: dict[tuple[str, str], PairMeasurement] = {}
    for (user, provider), error in evidence.items():
        key = minor(user), minor(provider)
        if error != IMPORTED:
            found[key] = PairMeasurement.FAILED
        else:
            found.setdefault(key, PairMeasurement.IMPORTED)
    return found


def unmeasured(compatibility: Compatibility, pair: Mapping[str, str]) -> PairMeasurement:
    """Tell if two releases can be installed together."""
    return PairMeasurement.EXCLUDED if compatibility.conflict(pair) else PairMeasurement.NONE


def measured_ranges(versions: Sequence[str], states: Sequence[PairMeasurement]) -> Iterator[MeasuredRange]:
    for state, same in groupby(zip(versions, states, strict=True), key=lambda pair: pair[1]):
        span = [version for version, _ in same]
        yield MeasuredRange(measurement=state, first=span[0], last=span[-1], count=len(span))


def minor(version: str) -> str:
    return ".".join(map(str, Version(version).release[:2]))


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
    return list({minor(version): place for place, version in enumerate(versions)}.values())


def all_pairs(api: ApiMap, results: Iterable[MeasuredImports] = ()) -> Mapping[tuple[str, str], list[UserRelease]]:
    """Return the table of each pair of packages of which one uses the other.

    ``results`` are those of the import matrix.
    """
    crossings = Crossings(api)
    compatibility = Compatibility(api)
    evidence = pair_evidence(results)
    tables: dict[tuple[str, str], list[UserRelease]] = {}
    for user in (each for each in USERS if each in api.packages):
        providers = crossings.providers_of(user)
        used = [each for each in PACKAGES if each in providers and each not in LEFT_OUT]
        by_provider: dict[str, list[Crossing]] = defaultdict(list)
        for each in crossings.of_user(user, used):
            by_provider[each.provider].append(each)
        for provider in used:
            measured = evidence.get((user, provider), {})
            tables[user, provider] = pair_table(compatibility, by_provider[provider], user, provider, measured)
    return tables
