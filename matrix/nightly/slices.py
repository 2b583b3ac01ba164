"""Orders the cells of a night into slices, most telling first, and cuts them to the time that is left."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cases.api import CALLS
from cases.grid.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cases.space.case import Case
    from matrix.run.timings import Timings
    from matrix.versions.sets import VersionSet

OVERHEAD_S: Final = 45.0  # the installation and the start of a set on a machine without past timings
# Packages that only some jobs use, and the words that the names of such calls' modules have.
WORDS_OF_MODULES: Final = {
    "peft": ("adapter", "adapting", "lora", "tuner", "methods", "starts"),
    "bitsandbytes": ("quantised",),
    "accelerate": ("devices", "parallel", "prepared", "trainers"),
    "trl": ("trl", "preferences", "packing", "trainers"),
}


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Cells of one set that run together."""

    version_set: VersionSet
    cases: tuple[Case, ...]


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The time budget of a night, in seconds, from the moment of its creation."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    def left(self, share: float = 1.0) -> float:
        """Return the seconds that are left of a share of the budget."""
        return max(0.0, share * self.seconds - (time.monotonic() - self.start))


def slices(sets: Sequence[VersionSet], cases: Iterable[Case], moved: Iterable[str]) -> Iterator[Slice]:
    """Yield the cells of a night, the most telling first; each slice has the same cases for every set.

    First the most common jobs that use a package that moved, then other cells that use one, then the rest; among each,
    the kinds of jobs alternate, because the time may end after any of them.

    Args:
        sets: the sets to measure, in order.
        cases: the cases of the profile.
        moved: the packages that moved in any set.
    """
    tiers: dict[tuple[bool, bool], list[Case]] = {}
    moved, common = tuple(moved), frozenset(PROFILES["default"].cases)
    for each in cases:
        used = any(uses(each, package) for package in moved)
        tiers.setdefault((not used, each not in common), []).append(each)
    for tier in sorted(tiers):
        for version_set in sets:
            yield Slice(version_set=version_set, cases=alternating(tiers[tier]))


def alternating(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return the first case of each kind of job, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    rounds: dict[int, list[Case]] = {}
    for each in cases:
        kind = kind_of(each)
        rounds.setdefault(seen[kind], []).append(each)
        seen[kind] += 1
    return tuple(each for number in sorted(rounds) for each in rounds[number])


def kind_of(case: Case) -> str:
    """Return the flow of a job, such as ``merge``, or the module of a call."""
    known = CALLS.get(case.options.call)
    return known.body.__module__ if known else case.options.flow


def uses(case: Case, package: str) -> bool:
    """Tell if a job uses a package. Every job uses torch and transformers."""
    options = case.options
    if options.call and package in WORDS_OF_MODULES:
        known = CALLS.get(options.call)
        name = known.body.__module__ if known else options.call  # a script has no module here
        return any(word in name for word in WORDS_OF_MODULES[package])
    if package == "peft":
        return options.method != "full"
    if package == "bitsandbytes":
        return options.quant != "none" or options.optim.endswith("8bit")
    if package == "accelerate":
        return options.front_end != "loop"
    return options.front_end == "sft" if package == "trl" else True


def fitting(cases: Sequence[Case], timings: Timings, *, workers: int, seconds: float) -> tuple[Case, ...]:
    """Return the first cells that fit into some seconds, by their times before on this machine, or by usual ones."""
    left = (seconds - (timings.overhead_s or OVERHEAD_S)) * workers
    chosen = []
    for each in cases:
        left -= timings.seconds(each)
        if left < 0:
            break
        chosen.append(each)
    return tuple(chosen)
