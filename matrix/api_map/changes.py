"""Lists what changed in a package's API between two releases: names, parameters and defaults that users write."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from matrix.api_map.view import Presence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

    from matrix.api_map.query import ApiMap
    from matrix.api_map.view import View

SAME_VALUE: Final = {"list()": "[]", "dict()": "{}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDefault:
    """A parameter or field with another default; ``old`` and ``new`` are source text."""

    path: str
    parameter: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class ApiChanges:
    """The changes of the names that a package exports, and of the parameters of its classes and functions.

    Attributes:
        package: the package.
        old: the older release.
        new: the newer release.
        removed: names that are gone, and ``PATH(PARAMETER)`` of parameters that are gone.
        renamed: of these, the new names that the package states.
        defaults: parameters that both have, with another default.
    """

    package: str
    old: str
    new: str
    removed: tuple[str, ...]
    renamed: Mapping[str, str]
    defaults: tuple[ChangedDefault, ...]


def changes(api: ApiMap, package: str, old: Mapping[str, str], new: Mapping[str, str]) -> ApiChanges:
    """Compare a package in two sets of versions.

    The sets state the versions of other packages as well, because a configuration may inherit fields from another
    package. A release that the map does not have shows no changes.
    """
    before, after = api.at(old), api.at(new)
    removed: list[str] = []
    renamed: dict[str, str] = {}
    defaults: list[ChangedDefault] = []
    for name in exported(api, package, before) if package in before.places and package in after.places else ():
        path = f"{package}.{name}"
        if after.presence(path) is Presence.MISSING:
            removed.append(path)
            continue
        for parameter in gone(path, before, after):
            removed.append(f"{path}({parameter})")
            new_name = after.rename(path, parameter) or before.rename(path, parameter)
            if new_name:
                renamed[f"{path}({parameter})"] = new_name
        defaults += changed_defaults(path, before, after)
    return ApiChanges(
        package=package,
        old=old.get(package, ""),
        new=new.get(package, ""),
        removed=tuple(removed),
        renamed=renamed,
        defaults=tuple(defaults),
    )


def of_package(api: ApiMap, package: str, old: str, new: str) -> ApiChanges:
    """Compare two releases of a package; the other packages are the newest of the older release's day."""
    place = api.place(package, old)
    others = {} if place is None else api.as_of(package, place).places
    versions = {name: api.versions(name)[each] for name, each in others.items()}
    return changes(api, package, {**versions, package: old}, {**versions, package: new})


@dataclass(frozen=True, kw_only=True)
class ReleaseDefaults:
    """A release that moved defaults, compared with the release before it."""

    version: str
    uploaded: date
    before: str
    defaults: tuple[ChangedDefault, ...]


def moved_defaults(api: ApiMap, package: str) -> Iterator[ReleaseDefaults]:
    """Yield the releases of a package that moved a default, newest first."""
    rows = [each for each in api.releases[package] if not each.unreadable]
    for before, release in reversed(list(pairwise(rows))):
        found = of_package(api, package, before.version, release.version).defaults
        if found:
            yield ReleaseDefaults(
                version=release.version, uploaded=release.uploaded, before=before.version, defaults=found
            )


def exported(api: ApiMap, package: str, view: View) -> Iterator[str]:
    """Yield the public names of a package's root module that a user calls, without models."""
    place = view.places[package]
    for name, rows in api.tables[package].names(package).items():
        if name[:1] not in {"_", "*", ""} and "." not in name:
            for row in rows:
                if row.first <= place <= row.last and row.kind != "module" and ".models." not in row.detail:
                    yield name
                    break


def gone(path: str, before: View, after: View) -> Iterator[str]:
    """Yield the parameters that are gone and not accepted any more."""
    for each in before.parameters(path) or ():
        if not each.name.startswith("*") and after.presence(f"{path}({each.name})") is Presence.MISSING:
            yield each.name


def changed_defaults(path: str, before: View, after: View) -> Iterator[ChangedDefault]:
    defaults = {each.name: each.default for each in after.parameters(path) or ()}
    for each in before.parameters(path) or ():
        default = defaults.get(each.name)
        if each.default is not None and default is not None and plain(each.default) != plain(default):
            yield ChangedDefault(path=path, parameter=each.name, old=each.default, new=default)


def plain(default: str) -> str:
    """Return the text of a default in one of the ways to write its value."""
    return SAME_VALUE.get(default, default)
