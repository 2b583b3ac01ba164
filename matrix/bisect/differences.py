"""Compares the packages of two environments, and groups those that can only move together."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matrix.environments.linked_environment import InstalledPackage

# How much likelier than another package a package is the cause.
OF_STACK: Final = 8.0
IN_TRACEBACK: Final = 16.0


@dataclass(frozen=True, kw_only=True)
class Packages:
    """The packages of an environment: version by name, and requirements by name."""

    versions: Mapping[str, str]
    requires: Mapping[str, Sequence[Requirement]]

    def meets(self, requirement: Requirement) -> bool:
        version = self.versions.get(canonicalize_name(requirement.name))
        return version is not None and requirement.specifier.contains(version, prereleases=True)


@dataclass(frozen=True, kw_only=True)
class PackageGroup:
    """Packages that require each other's versions, so that they move together, such as torch and CUDA's libraries."""

    names: tuple[str, ...]

    @property
    def main(self) -> str:
        """The package that the group is known by."""
        return next((name for name in PACKAGES if name in self.names), self.names[0])


@dataclass(frozen=True, kw_only=True)
class Differences:
    """The packages that differ between the good and the bad environment.

    ``replaced`` has the packages that only the good one has, by packages of the bad one that install the same files,
    such as NCCL for another CUDA: both cannot be installed together.
    """

    good: Packages
    bad: Packages
    replaced: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        every = sorted({*self.good.versions, *self.bad.versions})
        return tuple(name for name in every if self.good.versions.get(name) != self.bad.versions.get(name))

    @cached_property
    def required(self) -> Mapping[str, frozenset[str]]:
        """By package, the packages that must move if it moves, itself included."""
        direct: dict[str, set[str]] = {name: {name} for name in self.names}
        for name in self.names:
            for each in self.bad.requires.get(name, ()):  # the new version requires another new version
                other = canonicalize_name(each.name)
                if other in direct and not self.good.meets(each):
                    direct[name].add(other)
            for each in self.good.requires.get(name, ()):  # the old version rejects another new version
                other = canonicalize_name(each.name)
                if other in direct and not self.bad.meets(each):
                    direct[other].add(name)
        for name, others in self.replaced.items():
            direct[name] |= others
        return {name: reachable(name, direct) for name in self.names}

    @cached_property
    def groups(self) -> tuple[PackageGroup, ...]:
        """The packages in groups that move together; a group comes after those that it requires."""
        by_closure: dict[frozenset[str], list[str]] = {}
        for name in self.names:
            by_closure.setdefault(self.required[name], []).append(name)
        ordered = sorted(by_closure.items(), key=lambda item: (len(item[0]), item[1]))
        return tuple(PackageGroup(names=tuple(names)) for _, names in ordered)

    def closure(self, groups: frozenset[int]) -> frozenset[int]:
        """The numbers of some groups and of those that they require."""
        names = {name for number in groups for name in self.required[self.groups[number].names[0]]}
        return frozenset(number for number, group in enumerate(self.groups) if group.names[0] in names)

    def packages(self, groups: Iterable[int]) -> tuple[str, ...]:
        return tuple(sorted(name for number in groups for name in self.groups[number].names))

    def weights(self, traceback: str) -> list[float]:
        """How likely each group is the cause: the packages of the stack and of a traceback first."""
        return [max(weight(name, traceback) for name in group.names) for group in self.groups]


def reachable(name: str, direct: Mapping[str, Iterable[str]]) -> frozenset[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += direct[each]
    return frozenset(found)


def weight(name: str, traceback: str) -> float:
    if f"/{name.replace('-', '_')}/" in traceback:
        return IN_TRACEBACK
    return OF_STACK if name in PACKAGES else 1.0


def packages(found: Iterable[InstalledPackage], *, python: str) -> Packages:
    """The versions of some packages, and what they require on a Python such as ``3.11``."""
    place = {"python_version": python, "python_full_version": f"{python}.99", "extra": ""}
    versions: dict[str, str] = {}
    requires: dict[str, list[Requirement]] = {}
    for each in found:
        every = map(Requirement, each.requires)
        versions[each.name] = each.version
        requires[each.name] = [one for one in every if one.marker is None or one.marker.evaluate(place)]
    return Packages(versions=versions, requires=requires)


def replaced(good: Iterable[InstalledPackage], bad: Iterable[InstalledPackage]) -> dict[str, frozenset[str]]:
    """The packages of the good end alone, by packages of the bad end alone that have a file of them."""
    before, after = {each.name: each for each in good}, {each.name: each for each in bad}
    removed = {name: {*before[name].files} for name in before.keys() - after.keys()}
    pairs = {
        name: frozenset(other for other, files in removed.items() if not files.isdisjoint(after[name].files))
        for name in after.keys() - before.keys()
    }
    return {name: others for name, others in pairs.items() if others}
