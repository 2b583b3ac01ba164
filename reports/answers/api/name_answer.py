"""What the map says of a missing name: which releases have it, who uses it, and the smallest move of versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.api_map.query import ApiMap
    from reports.answers.api.missing_names import MissingName
    from reports.answers.api.moves import Move
    from reports.answers.api.users import NameUser


@dataclass(frozen=True, kw_only=True)
class NameAnswer:
    """What the map knows of a missing name.

    Attributes:
        path: the name.
        provider: the package that should have it.
        line: the line of the log.
        ranges: the first and last release of each range that has it; none: no release of the map has it.
        newest: the newest release of the map.
        installed: the provider's version in the log; empty if it states none.
        users: packages that use the name, with the ranges of their releases.
        overrides: the name is a parameter that ``users`` pass to methods which the provider, or the user, overrides.
        left_out: the name is a parameter without a default that the caller does not pass.
        accepts_any: ``ranges`` are the releases that accept any argument (``**kwargs``); none states this one.
        contradicts: the log's version has the name, or if it states none or an older one, every release of the map.
        is_requirement: the name is a requirement, such as ``tokenizers<0.20``, and ``ranges`` meet it.
        read_from: a base of the class that has the name; the job passed an object of the base.
        renamed: the new name, as the provider states it.
        instead: fields of the configuration class that have the name, or its new name, in the version of the log.
        moved: where the newest release has a name of the same word.
        moves: the smallest moves of one package, the best first.
    """

    path: str
    provider: str
    line: str
    ranges: tuple[tuple[str, str], ...]
    newest: str
    installed: str = ""
    users: tuple[NameUser, ...] = ()
    overrides: bool = False
    left_out: bool = False
    accepts_any: bool = False
    contradicts: bool = False
    is_requirement: bool = False
    read_from: str = ""
    renamed: str = ""
    instead: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()

    @property
    def known(self) -> bool:
        return bool(self.ranges)

    @property
    def is_before_the_map(self) -> bool:
        """Whether the log's version is older than each release that is known to have the name."""
        try:
            return bool(self.installed and self.ranges) and Version(self.installed) < Version(self.ranges[0][0])
        except InvalidVersion:
            return False

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.path,
            "package": self.provider,
            "line": self.line,
            "releases": [list(each) for each in self.ranges],
            "installed": self.installed,
            "users": [each.as_json() for each in self.users],
            "overrides": self.overrides,
            "left_out": self.left_out,
            "accepts_any": self.accepts_any,
            "contradicts": self.contradicts,
            "is_requirement": self.is_requirement,
            "read_from": self.read_from,
            "renamed": self.renamed,
            "instead": list(self.instead),
            "moved": list(self.moved),
            "moves": [each.as_json() for each in self.moves],
            "basis": "read from the releases",
        }


@dataclass(frozen=True, kw_only=True)
class NameQuestion:
    """A missing name, the versions of the log, and the map."""

    missing: MissingName
    versions: Mapping[str, str]
    api: ApiMap

    @property
    def user_packages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.partition(".")[0] for each in self.missing.users))

    def may_concern(self, package: str) -> bool:
        """Tell if a package is in the traceback or has a version in the log, or the log shows neither of any."""
        return package in {*self.user_packages, *self.versions} or not (self.user_packages or self.versions)
