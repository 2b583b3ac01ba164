"""Stretches of versions of a package that stand alike, from sets that stand as they do; and whose fault a red one is.

A version stands as the best of the sets that have it: green says that there are versions of the other packages with
which it works, red that it failed in every set that ran it. A move of one package alone that made the difference
shows that this package is to blame; what failed only beside such a version is unknown.

A version is *measured* where a set with it ran. Versions between two measured ones that stand alike are *inferred* to
stand like them; versions between two that do not, and those older or newer than all, are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final

from packaging.version import Version
from pydantic import Field

from cases.space.verdict import Verdict
from matrix.run.outcome import Stored
from matrix.versions.sets import PACKAGES
from reports.answers.support.status import GOOD, NOT_RUN, Standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from reports.answers.support.recommend import Candidate

BETTER_FIRST: Final = tuple(Standing)


class Stretch(Stored):
    """Versions of a package that stand alike."""

    versions: str = Field(description="as a specifier of PEP 440, such as >=0.18.0,<=0.19.1; empty for every version")
    standing: Standing
    settings: str = Field(default="", description="of green with a setting: which")
    measured: tuple[str, ...] = Field(default=(), description="versions of it that ran")
    inferred: bool = Field(default=False, description="whether it holds versions between the measured ones")
    sets: tuple[str, ...] = Field(default=(), description="that show it")
    reason: str = Field(default="", description="why it is unknown")


class Turn(Stored):
    """Two sets that differ in one package only, of which one is red and the other green."""

    package: str
    red: str
    green: str
    red_set: str
    green_set: str


def why(candidate: Candidate) -> str:
    """Why it is unknown, the part that was tried first."""
    if candidate.standing is not Standing.UNKNOWN:
        return ""
    reasons = [held.reason for held in candidate.held if held.reason]
    return next((each for each in reasons if each != NOT_RUN), NOT_RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A version that ran, or was tried in vain; ``ways`` are the settings of which any makes it green."""

    version: str
    standing: Standing
    ways: tuple[str, ...]
    sets: tuple[str, ...]
    reason: str


def measured(name: str, tried: Iterable[Candidate], guilty: Mapping[str, Collection[str]]) -> list[Measured]:
    """Every version of a package, the oldest first."""
    having: dict[str, list[Candidate]] = {}
    for each in tried:
        if name in each.column.pins:
            having.setdefault(each.column.pins[name], []).append(each)
    others = {other: versions for other, versions in guilty.items() if other != name}
    return [at(version, having[version], others) for version in sorted(having, key=Version)]


def at(version: str, having: Sequence[Candidate], guilty: Mapping[str, Collection[str]]) -> Measured:
    """How a version stands, but for the sets in which another package is to blame."""
    fair = [each for each in having if each.standing is not Standing.RED or not blamed(each, guilty)]
    best = min((each.standing for each in fair), key=BETTER_FIRST.index, default=Standing.UNKNOWN)
    showing = [each for each in fair or having if each.standing is best or not fair]
    return Measured(
        version=version,
        standing=best,
        ways=settings(showing[-1]),
        sets=tuple(each.key for each in showing),
        reason=short(why(showing[0])) if fair else f"ran only with a {blamed(having[0], guilty)} that is red by itself",
    )


def blamed(candidate: Candidate, guilty: Mapping[str, Collection[str]]) -> str:
    """The package of a set that is to blame, if one is."""
    pins = candidate.column.pins
    return next((name for name, versions in guilty.items() if pins.get(name) in versions), "")


def culprits(tried: Sequence[Candidate], moves: Iterable[Turn]) -> dict[str, frozenset[str]]:
    """By package, the versions that are to blame: red in every set, up to one whose move alone made the difference."""
    found: dict[str, frozenset[str]] = {}
    for move in moves:
        for run in alike(measured(move.package, tried, {})):
            versions = frozenset(each.version for each in run)
            if run[0].standing is Standing.RED and move.red in versions:
                found[move.package] = found.get(move.package, frozenset()) | versions
    return found


def short(reason: str) -> str:
    """Without the error that was met: of a stretch, there are several."""
    verdict, _, rest = reason.partition(": ")
    return rest.partition(": ")[0] if verdict == Verdict.SKIP.value else verdict


def settings(candidate: Candidate) -> tuple[str, ...]:
    """Of a need that takes a setting every way, the plainest first; of several needs one way for all."""
    if candidate.standing is not Standing.SETTING:
        return ()
    if len(candidate.held) > 1:
        return (candidate.settings,)
    return tuple(dict.fromkeys(green.words for green in candidate.held[0].greens))


def stretches(found: Sequence[Measured]) -> Iterator[Stretch]:
    """All versions of a package, the oldest first: what is known, and before, between and after it what is not."""
    runs = [run for run in alike(found) if run[0].standing is not Standing.UNKNOWN]
    silent = [each for each in found if each.standing is Standing.UNKNOWN]
    edges = [None, *runs, None]
    for before, after in pairwise(edges):
        yield unknown(before, after, silent)
        if after is not None:
            yield known_stretch(after)


def alike(found: Iterable[Measured]) -> list[list[Measured]]:
    """Neighbours that stand alike; of those that take a setting, such as have one in common."""
    runs: list[list[Measured]] = []
    for each in found:
        if runs and runs[-1][0].standing is each.standing and (not each.ways or common([*runs[-1], each])):
            runs[-1].append(each)
        else:
            runs.append([each])
    return runs


def common(run: Sequence[Measured]) -> tuple[str, ...]:
    return tuple(way for way in run[-1].ways if all(way in each.ways for each in run))


def known_stretch(run: Sequence[Measured]) -> Stretch:
    first, last = run[0], run[-1]
    alone = len(run) == 1
    return Stretch(
        versions=f"=={first.version}" if alone else f">={public(first)},<={public(last)}",
        standing=first.standing,
        settings=next(iter(common(run)), ""),
        measured=tuple(each.version for each in run),
        inferred=not alone,
        sets=tuple(dict.fromkeys(key for each in run for key in each.sets)),
    )


def public(each: Measured) -> str:
    """Without the build (``+cu130``): a specifier that orders versions takes none."""
    return Version(each.version).public


def unknown(before: Sequence[Measured] | None, after: Sequence[Measured] | None, silent: Sequence[Measured]) -> Stretch:
    """The versions between two stretches; what was tried there in vain says why."""
    above = [f">{public(before[-1])}"] if before else []
    below = [f"<{public(after[0])}"] if after else []
    inside = [
        each
        for each in silent
        if (not before or Version(each.version) > Version(before[-1].version))
        and (not after or Version(each.version) < Version(after[0].version))
    ]
    return Stretch(
        versions=",".join([*above, *below]),
        standing=Standing.UNKNOWN,
        reason="; ".join(dict.fromkeys(each.reason for each in inside)),
    )


def turns(tried: Sequence[Candidate]) -> Iterator[Turn]:
    """Moves of one package alone between red and green, in the order of the packages."""
    told = [each for each in tried if each.standing in (*GOOD, Standing.RED)]
    found = [each for pair in combinations(told, 2) if (each := turn(*pair)) is not None]
    yield from sorted(found, key=lambda each: PACKAGES.index(each.package))


def turn(one: Candidate, other: Candidate) -> Turn | None:
    moved = [name for name in PACKAGES if one.column.pins.get(name) != other.column.pins.get(name)]
    if len(moved) != 1 or (one.standing in GOOD) == (other.standing in GOOD):
        return None
    (name,) = moved
    green, red = (one, other) if one.standing in GOOD else (other, one)
    return Turn(
        package=name,
        red=red.column.pins.get(name, ""),
        green=green.column.pins.get(name, ""),
        red_set=red.key,
        green_set=green.key,
    )
