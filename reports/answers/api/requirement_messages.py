"""Answers for a requirement that a log says is not met: which releases meet it, and who states it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from matrix.api_map.packages import PACKAGES
from matrix.api_map.query import Having, runs
from reports.answers.api.moves import moves
from reports.answers.api.name_answer import NameAnswer
from reports.answers.api.users import LIKELY_USERS, NameUser

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.api_map.query import ApiMap
    from reports.answers.diagnosis.symptoms import Symptom

NAME: Final = rf"(?P<name>(?i:{'|'.join(each.replace('_', '[_-]') for each in PACKAGES)}|pytorch))"
ONE_BOUND: Final = r"(?:[<>=!~]=?=?)\s*v?\d[\w.*]*"
BOUND: Final = rf"\(?(?P<bound>{ONE_BOUND}(?:\s*,\s*{ONE_BOUND})*)"
VERSION: Final = r"v?(?P<version>\d+(?:\.\w+)+(?:\+\w+)?)"
MESSAGES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?P<user>[\w-]+) (?P<of>\d[\w.+]*) requires {NAME}\s?{BOUND}\)?, but you(?:'ll)? have [\w-]+ {VERSION}",
        rf"(?<![\w-]){NAME}\s?{BOUND}\)? is required.{{0,80}}? found (?:[\w-]+==\s?)?{VERSION}",
        rf"(?<![\w-]){NAME}\s?{BOUND}\)? is required",
        rf"(?P<user>[\w-]+) (?P<of>\d[\w.+]*) depends on {NAME}\s?{BOUND}",
        rf"(?:[Rr]equire[sd]?|[Nn]eeds?|install|upgrade)\b[^.\n]{{0,60}}?[`'\" ]{NAME}(?: version)?[`'\"]*\s?{BOUND}",
        rf"[`'\" ]{NAME}(?: version)?[`'\"]*\s?{BOUND}[^.\n]{{0,40}}? found {VERSION}",
    )
)
AT_LEAST: Final = re.compile(
    rf"(?<![\w-]){NAME}\b[^\n]{{0,80}}?\b(?:greater than|at least|newer than|minimum version(?: of)?)"
    r" v?(?P<least>\d+(?:\.\d+)+)"
)
ASKS_FOR_NEWER: Final = re.compile(r"\b(?:upgrade|update|install)\b", re.IGNORECASE)
MARKS: Final = ("requir", "need", "install", "upgrade", "found", "depends on", "greater than", "at least")


def explain_requirement(failure: Symptom, versions: Mapping[str, str], api: ApiMap) -> NameAnswer | None:
    """Return the answer for the last requirement in a log that its versions do not meet; None if there is none."""
    for line in reversed(failure.lines):
        for pattern in (*MESSAGES, AT_LEAST) if any(each in line for each in MARKS) else ():
            found = pattern.search(line)
            if found is not None:
                answered = of_message(found, line.strip(), versions, api)
                if answered is not None:
                    return answered
    return None


def of_message(found: re.Match[str], line: str, versions: Mapping[str, str], api: ApiMap) -> NameAnswer | None:
    """Return the answer for a message; None for a package outside the map, or if the installed release meets it."""
    named = found.groupdict()
    package = {"pytorch": "torch"}.get(plain(found["name"]), plain(found["name"]))
    if package not in api.packages:
        return None
    try:
        bound = SpecifierSet(named.get("bound", f">={named.get('least')}").replace(" ", "").rstrip("."))
    except InvalidSpecifier:
        return None
    installed = named.get("version") or versions.get(package, "")
    if installed and bound.contains(installed, prereleases=True):
        return None
    known = {**versions, **({package: installed} if installed else {})}
    if named.get("user") and plain(found["user"]) in api.packages:
        known[plain(found["user"])] = found["of"]
    having = meeting(package, bound, api)
    if not installed and having.versions == api.versions(package) and not ASKS_FOR_NEWER.search(line):
        return None
    users = tuple(stating(package, bound, installed, plain(named.get("user") or ""), api))
    return NameAnswer(
        path=having.path,
        provider=package,
        line=line,
        ranges=having.ranges,
        newest=api.versions(package)[-1],
        installed=installed,
        users=users,
        is_requirement=True,
        moves=tuple(moves(having, users, known, api, has="it meets the requirement")),
    )


def plain(name: str) -> str:
    return name.lower().replace("-", "_")


def meeting(package: str, bound: SpecifierSet, api: ApiMap) -> Having:
    versions = api.versions(package)
    meets = [bound.contains(each, prereleases=True) for each in versions]
    return Having(
        path=f"{package}{bound}",
        package=package,
        versions=tuple(each for each, yes in zip(versions, meets, strict=True) if yes),
        unknown=(),
        ranges=tuple((versions[first], versions[last]) for first, last in runs(meets)),
    )


def stating(package: str, bound: SpecifierSet, installed: str, user: str, api: ApiMap) -> Iterator[NameUser]:
    """Yield the packages whose releases state a requirement that the installed release does not meet.

    ``user`` is the package that the message names. Without an installed release, the bound must be the message's.
    """
    for name in (user,) if user in api.packages else LIKELY_USERS:
        versions = api.versions(name)
        flags = [refuses(each.requires, package, bound, installed) for each in api.releases[name]]
        if any(flags) and name != package:
            ranges = tuple((versions[first], versions[last]) for first, last in runs(flags))
            if user or any(states(each.requires, package, bound) for each in api.releases[name]):
                yield NameUser(package=name, module=f"its requirement {package}{bound}", ranges=ranges, how="states")


def refuses(requires: tuple[str, ...], package: str, bound: SpecifierSet, installed: str) -> bool:
    if not installed:
        return states(requires, package, bound)
    return any(not each.contains(installed, prereleases=True) for each in bounds(requires, package))


def states(requires: tuple[str, ...], package: str, bound: SpecifierSet) -> bool:
    return any(each == bound for each in bounds(requires, package))


def bounds(requires: tuple[str, ...], package: str) -> Iterator[SpecifierSet]:
    for each in requires:
        if re.fullmatch(rf"{package}(?!\w).*", each):
            yield SpecifierSet(each.removeprefix(package))
