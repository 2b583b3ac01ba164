"""Groups the versions of a package into ranges with the same status, and finds the package that is at fault.

A version has the best status of the sets that contain it: green means that it works with some versions of the other
packages, red that it failed in every set that ran it. Builds of one release, such as 2.12.0 and 2.12.0+cu130, count as
one version, because a specifier for the first holds the second as well. If two sets differ in one package only and one
of them is red, that package is at fault. A version that failed only in sets where another package is at fault is
unknown.

A version is *measured* if a set with it ran. Versions between two measured ones of the same status are *inferred* to
have it too; versions between two of different status, and those older or newer than all measured ones, are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final

from packaging.version import Version
from pydantic import AliasChoices, Field

from cases.space.verdict import Verdict
from matrix.run.outcome import Stored
from matrix.versions.sets import PACKAGES
from reports.answers.support.status import GOOD, NOT_RUN, SupportStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from reports.answers.support.candidates import Candidate

BETTER_FIRST: Final = tuple(SupportStatus)


class VersionRange(Stored):
    """A range of versions of a package with the same status."""

    versions: str = Field(description="as a specifier of PEP 440, such as >=0.18.0,<=0.19.1; empty for every version")
    status: SupportStatus = Field(validation_alias=AliasChoices("status", "standing"))
    settings: str = Field(default="", description="the settings of green with a setting")
    measured: tuple[str, ...] = Field(default=(), description="versions that ran")
    inferred: bool = Field(default=False, description="true if the range includes versions between measured ones")
    sets: tuple[str, ...] = Field(default=(), description="sets that prove the status")
    reason: str = Field(default="", description="why the status is unknown")


class PackageMove(Stored):
    """Two sets that differ in one package only; one is red and the other green."""

    package: str
    red: str
    green: str
    red_set: str
    green_set: str


def why(candidate: Candidate) -> str:
    """Return why the status is unknown; a reason from a run comes first."""
    if candidate.status is not SupportStatus.UNKNOWN:
        return ""
    reasons = [query_status.reason for query_status in candidate.statuses if query_status.reason]
    return next((each for each in reasons if each != NOT_RUN), NOT_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredVersion:
    """A version that ran, or was tried without a result; any of ``ways`` is a setting that makes it green."""

    version: str
    status: SupportStatus
    ways: tuple[str, ...]
    sets: tuple[str, ...]
    reason: str


def measured(
    name: str, candidates: Iterable[Candidate], at_fault: Mapping[str, Collection[str]]
) -> list[MeasuredVersion]:
    """Return every version of a package with its status, oldest first. Builds of a release share their status."""
    having: dict[str, list[Candidate]] = {}
    for each in candidates:
        if name in each.column.pins:
            having.setdefault(Version(each.column.pins[name]).public, []).append(each)
    versions = {each.column.pins[name] for release in having.values() for each in release}
    others = {other: versions for other, versions in at_fault.items() if other != name}
    return [at(version, having[Version(version).public], others) for version in sorted(versions, key=Version)]


def at(version: str, having: Sequence[Candidate], at_fault: Mapping[str, Collection[str]]) -> MeasuredVersion:
    """Return the status of a version, ignoring red sets in which another package is at fault."""
    fair = [each for each in having if each.status is not SupportStatus.RED or not package_at_fault(each, at_fault)]
    best = min((each.status for each in fair), key=BETTER_FIRST.index, default=SupportStatus.UNKNOWN)
    showing = [each for each in fair or having if each.status is best or not fair]
    return MeasuredVersion(
        version=version,
        status=best,
        ways=settings(showing[-1]),
        sets=tuple(each.key for each in showing),
        reason=short(why(showing[0]))
        if fair
        else f"ran only with a {package_at_fault(having[0], at_fault)} that is red by itself",
    )


def package_at_fault(candidate: Candidate, at_fault: Mapping[str, Collection[str]]) -> str:
    """Return the package of a set that is at fault; empty if none is known."""
    pins = candidate.column.pins
    return next((name for name, versions in at_fault.items() if pins.get(name) in versions), "")


def versions_at_fault(candidates: Sequence[Candidate], moves: Iterable[PackageMove]) -> dict[str, frozenset[str]]:
    """Return the versions at fault by package: red in every set, next to a version that alone made the difference."""
    at_fault: dict[str, frozenset[str]] = {}
    for move in moves:
        for run in same_status_runs(measured(move.package, candidates, {})):
            versions = frozenset(each.version for each in run)
            if run[0].status is SupportStatus.RED and move.red in versions:
                at_fault[move.package] = at_fault.get(move.package, frozenset()) | versions
    return at_fault


def short(reason: str) -> str:
    """Return the reason without its error message, because a range has several."""
    verdict, _, rest = reason.partition(": ")
    return rest.partition(": ")[0] if verdict == Verdict.SKIP.value else verdict


def settings(candidate: Candidate) -> tuple[str, ...]:
    """Return the settings that make a set green, plainest first; for several queries, their settings together."""
    if candidate.status is not SupportStatus.SETTING:
        return ()
    if len(candidate.statuses) > 1:
        return (candidate.settings,)
    return tuple(dict.fromkeys(green.words for green in candidate.statuses[0].greens))


def version_ranges(versions: Sequence[MeasuredVersion]) -> Iterator[VersionRange]:
    """Yield the ranges of all versions of a package, oldest first, with unknown ranges between known ones."""
    runs = [run for run in same_status_runs(versions) if run[0].status is not SupportStatus.UNKNOWN]
    silent = [each for each in versions if each.status is SupportStatus.UNKNOWN]
    edges = [None, *runs, None]
    for before, after in pairwise(edges):
        yield unknown(before, after, silent)
        if after is not None:
            yield known_range(after)


def same_status_runs(versions: Iterable[MeasuredVersion]) -> list[list[MeasuredVersion]]:
    """Group neighbouring versions with the same status; if they need settings, with a setting in common."""
    runs: list[list[MeasuredVersion]] = []
    for each in versions:
        if runs and runs[-1][0].status is each.status and (not each.ways or common([*runs[-1], each])):
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def common(run: Sequence[MeasuredVersion]) -> tuple[str, ...]:
    return tuple(way for way in run[-1].ways if all(way in each.ways for each in run))


def known_range(run: Sequence[MeasuredVersion]) -> VersionRange:
    first, last = run[0], run[-1]
    alone = len(run) == 1
    return VersionRange(
        versions=f"=={first.version}" if alone else f">={public(first)},<={public(last)}",
        status=first.status,
        settings=next(iter(common(run)), ""),
        measured=tuple(each.version for each in run),
        inferred=not alone,
        sets=tuple(dict.fromkeys(key for each in run for key in each.sets)),
    )


def public(each: MeasuredVersion) -> str:
    """Return the version without its build (``+cu130``), which an ordered specifier cannot have."""
    return Version(each.version).public


def unknown(
    before: Sequence[MeasuredVersion] | None, after: Sequence[MeasuredVersion] | None, silent: Sequence[MeasuredVersion]
) -> VersionRange:
    """Return the unknown range between two known ones, with the reasons of the versions tried there."""
    above = [f">{public(before[-1])}"] if before else []
    below = [f"<{public(after[0])}"] if after else []
    inside = [
        each
        for each in silent
        if (not before or Version(each.version) > Version(before[-1].version))
        and (not after or Version(each.version) < Version(after[0].version))
    ]
    return VersionRange(
        versions=",".join([*above, *below]),
        status=SupportStatus.UNKNOWN,
        reason="; ".join(dict.fromkeys(each.reason for each in inside)),
    )


def package_moves(candidates: Sequence[Candidate]) -> Iterator[PackageMove]:
    """Yield pairs of sets that differ in one package and between red and green, sorted by package."""
    rows = [each for each in candidates if each.status in (*GOOD, SupportStatus.RED)]
    moves = [each for pair in combinations(rows, 2) if (each := move_between(*pair)) is not None]
    yield from sorted(moves, key=lambda each: PACKAGES.index(each.package))


def move_between(one: Candidate, other: Candidate) -> PackageMove | None:
    moved = [name for name in PACKAGES if one.column.pins.get(name) != other.column.pins.get(name)]
    if len(moved) != 1 or (one.status in GOOD) == (other.status in GOOD):
        return None
    (name,) = moved
    green, red = (one, other) if one.status in GOOD else (other, one)
    return PackageMove(
        package=name,
        red=red.column.pins.get(name, ""),
        green=green.column.pins.get(name, ""),
        red_set=red.key,
        green_set=green.key,
    )
