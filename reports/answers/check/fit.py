"""Finds the releases of each package with which a script fits.

A release stays if it has every name that the script takes from it, perhaps together with a release of another package
that stays as well, and if releases that it requires stay. Only what every release is known to lack excludes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from matrix.api_map.view import Presence
from reports.answers.check.releases_with import package_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.api_map.store import MappedRelease
    from reports.answers.check.overrides import NarrowOverride
    from reports.answers.check.releases_with import Answer, ReleaseAnswers
    from reports.answers.check.uses import StatedMinimum, Use


@dataclass(kw_only=True)
class FitResult:
    """The releases that fit, by their places, for each package that the script uses.

    ``empty`` names a package of which none is left; the others are then not narrowed further.
    """

    domains: dict[str, set[int]]
    empty: str = ""
    required: dict[tuple[str, int], str] = field(default_factory=dict)  # why a requirement excludes a release


class Fitting:
    """Removes releases until those that are left agree with each other."""

    def __init__(self, releases: ReleaseAnswers, uses: Sequence[Use], stated: Sequence[StatedMinimum] = ()) -> None:
        self.releases = releases
        self.uses = [each for each in uses if not each.guard and self.narrows(each)]
        packages = {package_of(path) for each in self.uses for path in each.paths}
        packages |= {package_of(path) for use in self.uses for path in self.bases(use)}
        packages |= {each.package for each in uses if each.package in releases.api.releases}
        self.fit = FitResult(domains={each: releases.readable(each) for each in sorted(packages)})
        for minimum in stated:
            self.state(minimum)

    def narrows(self, use: Use) -> bool:
        """Tell if a use can exclude releases: they are of one package, which the map has, and a release has it."""
        packages = {package_of(path) for path in use.paths}
        return (
            len(packages) == 1
            and packages <= self.releases.api.releases.keys()
            and any(self.releases.is_known(path) for path in use.paths)
        )

    def bases(self, use: Use) -> set[str]:
        answers = {answer for path in use.paths for answer in self.releases.having(path)}
        return {base for answer in answers if isinstance(answer, tuple) for base in answer}

    def state(self, minimum: StatedMinimum) -> None:
        domain = self.fit.domains.get(minimum.package)
        if domain is None:
            return
        for place in excluded_places(self.releases, minimum.package, minimum.specifier, domain):
            domain.discard(place)
            self.fit.required[minimum.package, place] = f"{minimum.place} demands {minimum.package}{minimum.specifier}"

    def exclude(self, narrow: NarrowOverride) -> None:
        """Remove the releases that pass an argument which a method of the script does not accept."""
        domain = self.fit.domains.get(narrow.package)
        if domain is None or not narrow.is_passed:
            return
        override = narrow.override
        for place in narrow.places & domain:
            domain.discard(place)
            why = f"{override.own_name} lacks {narrow.parameter}, which {narrow.package} passes"
            self.fit.required[narrow.package, place] = why

    def run(self) -> FitResult:
        """Remove releases until nothing changes or a package has none left."""
        changed = True
        while changed and not self.fit.empty:
            before = sum(map(len, self.fit.domains.values()))
            for step in (self.by_use, self.by_requirement):
                step()
                self.fit.empty = next((name for name, places in self.fit.domains.items() if not places), "")
                if self.fit.empty:
                    break
            changed = before != sum(map(len, self.fit.domains.values()))
        return self.fit

    def by_use(self) -> None:
        for use in self.uses:
            domain = self.fit.domains[use.package]
            domain -= {place for place in domain if not self.has(use, place)}
            self.narrow_bases(use)
            if not domain:
                return

    def has(self, use: Use, place: int) -> bool:
        """Tell if a release has, or may have, what a use takes, with some release of the other packages."""
        return any(self.supported(self.releases.having(path)[place]) for path in use.paths)

    def may_have(self, use: Use, place: int) -> bool:
        """Tell if a release has, or may have, what a use takes, with any release of the other packages."""
        return any(self.releases.having(path)[place] is not Presence.MISSING for path in use.paths)

    def supported(self, answer: Answer) -> bool:
        if isinstance(answer, tuple):
            return any(self.base_places(base) & self.fit.domains[package_of(base)] for base in answer)
        return answer is not Presence.MISSING

    def base_places(self, base: str) -> set[int]:
        """Return the releases that have a name; one that depends on a third package counts as there."""
        return {place for place, answer in enumerate(self.releases.having(base)) if answer is not Presence.MISSING}

    def narrow_bases(self, use: Use) -> None:
        """Narrow a package that every release left needs for a name."""
        needed = self.needed(use)
        if len(needed) == 1:
            package, places = next(iter(needed.items()))
            self.fit.domains[package] &= places

    def needed(self, use: Use) -> dict[str, set[int]]:
        """Return the releases of other packages of which one has to be there; none if a release does without."""
        found: dict[str, set[int]] = {}
        for place in self.fit.domains[use.package]:
            answers = [self.releases.having(path)[place] for path in use.paths]
            if any(answer is Presence.THERE or answer is Presence.UNKNOWN for answer in answers):
                return {}
            for base in (base for answer in answers if isinstance(answer, tuple) for base in answer):
                found.setdefault(package_of(base), set()).update(self.base_places(base))
        return found

    def by_requirement(self) -> None:
        for package, domain in self.fit.domains.items():
            for other in self.fit.domains:
                if other != package and domain:
                    self.require(package, other)

    def require(self, package: str, other: str) -> None:
        """Remove releases whose requirement of another package no release left meets, and those that none admits."""
        domain, others = self.fit.domains[package], self.fit.domains[other]
        admitted: set[int] = set()
        for place in sorted(domain):
            specifier = requirement(self.releases.api.releases[package][place], other)
            meets = places_meeting(self.releases, other, specifier) & others if specifier else others
            if meets:
                admitted |= meets
                continue
            domain.discard(place)
            why = f"{package} {self.releases.version(package, place)} requires {other}{specifier}"
            self.fit.required[package, place] = why
        if not domain:
            return
        for place in others - admitted:
            others.discard(place)
            why = f"no {package} that fits admits {other} {self.releases.version(other, place)}"
            self.fit.required[other, place] = why


def requirement(release: MappedRelease, other: str) -> str:
    """Return the specifier that a release states for another package; empty if it states none."""
    return requirements(release.requires).get(other, "")


@cache
def requirements(rows: tuple[str, ...]) -> dict[str, str]:
    """Return the specifiers by package. Requirements of extras, platforms and Pythons are left out."""
    found: dict[str, str] = {}
    for row in rows:
        try:
            wanted = Requirement(row)
        except InvalidRequirement:
            continue
        if wanted.marker is None:
            name = wanted.name.replace("-", "_").lower()
            found[name] = ",".join(filter(None, (found.get(name, ""), str(wanted.specifier))))
    return found


def places_meeting(releases: ReleaseAnswers, package: str, specifier: str) -> set[int]:
    known = releases.meeting
    if (package, specifier) not in known:
        known[package, specifier] = set(meeting(releases, package, specifier))
    return known[package, specifier]


def meeting(releases: ReleaseAnswers, package: str, specifier: str) -> Iterable[int]:
    wanted = SpecifierSet(specifier)
    return (
        place for place in releases.of(package) if wanted.contains(releases.version(package, place), prereleases=True)
    )


def excluded_places(releases: ReleaseAnswers, package: str, specifier: str, domain: set[int]) -> set[int]:
    """Return the places of a domain that a specifier excludes."""
    return domain - places_meeting(releases, package, specifier)
