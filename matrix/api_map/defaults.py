"""Lists parameters and fields whose default differs between two releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.api_map.query import ApiMap
    from matrix.api_map.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedDefault:
    """A parameter or field with another default; ``old`` and ``new`` are source text."""

    path: str
    parameter: str
    old: str
    new: str


def changed_defaults(api: ApiMap, package: str, old: Mapping[str, str], new: Mapping[str, str]) -> list[ChangedDefault]:
    """Return the changed defaults of the classes and functions that a package exports, between two sets of versions.

    Parameters that only one side has are no changed defaults. The sets state the versions of other packages as well,
    because a configuration may inherit fields from another package.
    """
    before, after = api.at(old), api.at(new)
    if package not in before.places or package not in after.places:
        return []
    return [each for name in exported(api, package, before) for each in compared(f"{package}.{name}", before, after)]


def exported(api: ApiMap, package: str, view: View) -> Iterator[str]:
    """Yield the public names of a package's root module that a user calls, without models."""
    place = view.places[package]
    for name, rows in api.tables[package].names(package).items():
        if name[:1] not in {"_", "*", ""} and "." not in name:
            for row in rows:
                if row.first <= place <= row.last and ".models." not in row.detail:
                    yield name
                    break


def compared(path: str, before: View, after: View) -> Iterator[ChangedDefault]:
    old, new = before.parameters(path), after.parameters(path)
    if not old or not new:
        return
    defaults = {each.name: each.default for each in new}
    for each in old:
        default = defaults.get(each.name)
        if each.default is not None and default is not None and is_other(each.default, default):
            yield ChangedDefault(path=path, parameter=each.name, old=each.default, new=default)


def is_other(old: str, new: str) -> bool:
    """Tell if two defaults differ in value, as far as their text shows: ``list()`` is ``[]``."""
    plain = {"list()": "[]", "dict()": "{}", "lambda: []()": "[]"}
    return plain.get(old, old) != plain.get(new, new)
