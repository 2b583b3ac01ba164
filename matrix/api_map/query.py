"""Questions to the stored map: which releases have a name, what a name is called now, and what a release has.

Example:
    >>> api = ApiMap()
    >>> answer = api.having("transformers.TrainingArguments(evaluation_strategy)")
    >>> answer.ranges                                           # doctest: +SKIP
    (("4.30.0", "4.45.2"),)
    >>> api.rename("transformers.TrainingArguments", "evaluation_strategy")  # doctest: +SKIP
    'eval_strategy'

A path is dotted as an import is: ``transformers.Trainer`` (a name that can be imported), ``transformers.Trainer.train``
(a method, field or attribute of a class, also of a base), and ``transformers.Trainer(tokenizer)`` or
``trl.SFTTrainer.train(trial)`` (a parameter of a constructor, function or method).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from matrix.api_map import store
from matrix.api_map.packages import LIBRARIES, PACKAGES
from matrix.api_map.tables import PackageTables
from matrix.api_map.view import Parameter, Presence, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from matrix.api_map.store import MappedRelease


@dataclass(frozen=True, kw_only=True)
class Having:
    """The releases that have a name.

    Attributes:
        path: the name.
        package: its package.
        versions: the releases that have it, oldest first.
        unknown: releases of which the map cannot say it, because the name may be made at run time.
        ranges: first and last version of consecutive releases that have it.
        known: there is a release that has it. If not, no release since the map's first ever had it, or it is dynamic.
    """

    path: str
    package: str
    versions: tuple[str, ...]
    unknown: tuple[str, ...]
    ranges: tuple[tuple[str, str], ...]

    @property
    def known(self) -> bool:
        return bool(self.versions)

    def admits(self, version: str) -> bool:
        """Tell if a release has the name, or may have it."""
        return version in self.versions or version in self.unknown


class ApiMap:
    """The stored map. Tables are read when they are first needed."""

    def __init__(self, folder: Path = store.DATA) -> None:
        self.folder = folder
        self.cached: dict[str, Having] = {}

    @cached_property
    def releases(self) -> Mapping[str, Sequence[MappedRelease]]:
        """The releases of each package, in the order of versions, with the days of their uploads."""
        return store.releases_of(self.folder)

    @cached_property
    def tables(self) -> Mapping[str, PackageTables]:
        return {package: PackageTables(package, self.folder) for package in self.releases}

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(each for each in PACKAGES if each in self.releases)

    def versions(self, package: str) -> tuple[str, ...]:
        return tuple(each.version for each in self.releases.get(package, ()))

    def place(self, package: str, version: str) -> int | None:
        """Return the place of a release, or None. ``2.5.1+cpu`` has the place of its release."""
        try:
            wanted = Version(Version(version).public)
        except InvalidVersion:
            return None
        places = self.places.get(package, {})
        return places.get(wanted)

    @cached_property
    def places(self) -> Mapping[str, Mapping[Version, int]]:
        return {
            package: {Version(each.version): place for place, each in enumerate(rows) if not each.unreadable}
            for package, rows in self.releases.items()
        }

    def at(self, versions: Mapping[str, str], libraries: Mapping[str, str] | None = None) -> View:
        """Return a view of exactly these versions. Packages that it does not know, and other versions, are left out.

        ``libraries`` are the versions of all other installed modules, if they are known. Without them, a library of the
        map has the version that a release requires exactly, as torch requires triton.
        """
        versions = {**self.required_libraries(versions), **(libraries or {}), **versions}
        places = {
            package: place
            for package, version in versions.items()
            if (place := self.place(package, version)) is not None
        }
        return View(tables=self.tables, places=places, libraries=libraries)

    def required_libraries(self, versions: Mapping[str, str]) -> dict[str, str]:
        """Return the versions of the map's libraries that these releases require exactly."""
        found: dict[str, str] = {}
        for package, version in versions.items():
            place = self.place(package, version)
            for each in self.releases[package][place].requires if place is not None else ():
                name, _, exact = each.partition("==")
                if name in LIBRARIES and exact and "," not in exact:
                    found[name] = exact
        return found

    def as_of(self, package: str, place: int, versions: Mapping[str, str] | None = None) -> View:
        """Return a view of one release with the newest releases of the others on the day of its upload.

        ``versions`` names releases to use instead.
        """
        day = self.releases[package][place].uploaded
        contemporary = {name: self.newest_until(name, day) for name in self.releases}
        given = {name: self.place(name, version) for name, version in (versions or {}).items()}
        chosen = contemporary | {name: each for name, each in given.items() if each is not None} | {package: place}
        return View(tables=self.tables, places={name: each for name, each in chosen.items() if each is not None})

    def newest_until(self, package: str, day: date) -> int | None:
        """Return the place of the highest version that was uploaded until a day."""
        places, uploads = self.newest[package]
        found = bisect_right(uploads, day)
        return places[found - 1] if found else None

    @cached_property
    def newest(self) -> Mapping[str, tuple[list[int], list[date]]]:
        """For each package the days on which its highest version changed, with its place."""
        found: dict[str, tuple[list[int], list[date]]] = {}
        for package, rows in self.releases.items():
            places: list[int] = []
            days: list[date] = []
            for place, each in sorted(enumerate(rows), key=lambda pair: (pair[1].uploaded, pair[0])):
                if not places or place > places[-1]:
                    places.append(place)
                    days.append(each.uploaded)
            found[package] = places, days
        return found

    def having(self, path: str, versions: Mapping[str, str] | None = None) -> Having:
        """Return the releases of the path's package that have a name.

        Bases in other packages, such as ``transformers.TrainingArguments`` of ``trl.SFTConfig``, are those of
        ``versions``, or else the newest on the day of each release.
        """
        key = f"{path} {sorted((versions or {}).items())}"
        if key not in self.cached:
            self.cached[key] = self.look_up(path, versions)
        return self.cached[key]

    def look_up(self, path: str, versions: Mapping[str, str] | None) -> Having:
        package = path.partition(".")[0].partition("(")[0]
        rows = self.releases.get(package, ())
        states = [self.as_of(package, place, versions).presence(path) for place in range(len(rows))]
        there = [state is Presence.THERE for state in states]
        listed = [each.version for each in rows]
        return Having(
            path=path,
            package=package,
            versions=tuple(version for version, yes in zip(listed, there, strict=True) if yes),
            unknown=tuple(v for v, state in zip(listed, states, strict=True) if state is Presence.UNKNOWN),
            ranges=tuple((listed[first], listed[last]) for first, last in runs(there)),
        )

    def parameters(self, path: str, versions: Mapping[str, str]) -> list[Parameter] | None:
        """Return the parameters, or fields of a dataclass, in these versions; None if they are not known."""
        return self.at(versions).parameters(path)

    def rename(self, path: str, old: str) -> str:
        """Return the new name of a parameter or field, as the newest release that knows the old one states it.

        Empty if no release states one.
        """
        package = path.partition(".")[0]
        for place in range(len(self.releases.get(package, ())) - 1, -1, -1):
            found = self.as_of(package, place).rename(path, old)
            if found:
                return found
        return ""


def runs(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the first and last place of each run of true flags."""
    found: list[tuple[int, int]] = []
    for place, flag in enumerate(flags):
        if flag and place and flags[place - 1] and found:
            found[-1] = found[-1][0], place
        elif flag:
            found.append((place, place))
    return found
