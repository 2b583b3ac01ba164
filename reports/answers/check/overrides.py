"""Finds methods of a script that accept less than the method of the stack that they replace, since a release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.api_map.store import ranges
from matrix.api_map.view import Presence
from matrix.keys import without_local
from reports.answers.check.releases_with import package_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reports.answers.check.releases_with import ReleaseAnswers
    from reports.answers.check.uses import Override


@dataclass(frozen=True, kw_only=True)
class NarrowOverride:
    """A method that lacks a parameter of the method that it replaces.

    ``ranges`` and ``places`` are the releases of ``package`` in which that method has it. ``is_passed``: the package
    passes it, as TRL's own classes that replace the method accept it. A script that calls the method itself decides
    what is passed.
    """

    override: Override
    path: str
    package: str
    parameter: str
    ranges: tuple[tuple[str, str], ...]
    places: frozenset[int]
    versions: frozenset[str]
    is_passed: bool

    def is_in(self, version: str) -> bool:
        """Tell if the method that is replaced has the parameter in a release."""
        return without_local(version) in self.versions


def narrower_overrides(overrides: Iterable[Override], releases: ReleaseAnswers) -> Iterator[NarrowOverride]:
    """Yield each parameter that only some releases have, and that the script's method does not accept."""
    for override in overrides:
        for path in definitions_of(override.path, releases):
            yield from lacking(override, path, releases)


def definitions_of(path: str, releases: ReleaseAnswers) -> set[str]:
    """Return the methods that a path leads to: of its own package, or of bases in others."""
    if package_of(path) not in releases.api.releases:
        return set()
    answers = set(releases.having(path))
    found = {path} if Presence.THERE in answers else set()
    return found | {base for answer in answers if isinstance(answer, tuple) for base in answer}


def lacking(override: Override, path: str, releases: ReleaseAnswers) -> Iterator[NarrowOverride]:
    package = package_of(path)
    by_place = {place: parameters(path, package, place, releases) for place in releases.readable(package)}
    known = {place: names for place, names in by_place.items() if names is not None}
    everywhere = set.intersection(*map(set, known.values())) if known else set()
    added = {name for names in known.values() for name in names} - everywhere - set(override.parameters)
    for name in sorted(added):
        places = {
            place for place, names in known.items() if name in names and names.index(name) >= len(override.parameters)
        }
        if places:
            bits = sum(1 << place for place in places)
            spans = tuple((releases.version(package, a), releases.version(package, z)) for a, z in ranges(bits))
            yield NarrowOverride(
                override=override,
                path=path,
                package=package,
                parameter=name,
                ranges=spans,
                places=frozenset(places),
                versions=frozenset(releases.version(package, place) for place in places),
                is_passed=not override.is_called
                and releases.is_accepted_elsewhere(package, path.rpartition(".")[2], name),
            )


def parameters(path: str, package: str, place: int, releases: ReleaseAnswers) -> list[str] | None:
    """Return the names of a method's parameters in a release, without ``self``; None if it has no such method."""
    found = releases.view(package, place).parameters(path)
    return None if found is None else [each.name for each in found if not each.name.startswith("*")]
