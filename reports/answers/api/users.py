"""Finds the releases of packages that use a name of another one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from matrix.api_map.query import runs
from matrix.api_map.reading.conditions import FUNCTION, TRY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.api_map.query import ApiMap
    from reports.answers.api.missing_names import MissingName

LIKELY_USERS: Final = ("trl", "peft", "accelerate", "transformers", "bitsandbytes", "datasets", "huggingface_hub")
MOST: Final = 3


@dataclass(frozen=True, kw_only=True)
class NameUser:
    """A package that uses a name: the module, the ranges of releases that do, and how.

    ``how`` is a verb: imports, uses, passes or states (a requirement). ``later`` is true if only functions use it.
    """

    package: str
    module: str
    ranges: tuple[tuple[str, str], ...]
    how: str
    later: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "package": self.package,
            "module": self.module,
            "releases": [list(each) for each in self.ranges],
            "how": self.how,
            "at_import": not self.later,
        }


def users_of(path: str, missing: MissingName, api: ApiMap, versions: Mapping[str, str]) -> Iterator[NameUser]:
    """Yield the users of a name: the package in the traceback, or if the log has no traceback, all that use it."""
    provider = path.partition(".")[0].partition("(")[0]
    named = [each.partition(".")[0] for each in missing.users if each.partition(".")[0] != provider]
    found = [use for user in dict.fromkeys(named or LIKELY_USERS) if user in api.packages and user != provider
             for use in uses_in(user, path, missing, api)]  # fmt: skip
    installed = [each for each in found if each.package in versions]
    yield from (installed or found)[:MOST]


def uses_in(user: str, path: str, missing: MissingName, api: ApiMap) -> Iterator[NameUser]:
    bits: dict[str, int] = {}
    at_import = False
    for module, _, _, conditions, first, last in api.tables[user].use_table.matching("target", pattern_of(path)):
        if TRY in conditions.split(";") or ":" in module:  # a function's uses are those of its module as well
            continue
        bits[module] = bits.get(module, 0) | ((1 << (last - first + 1)) - 1) << first
        at_import |= FUNCTION not in conditions.split(";")
    if not bits:
        return
    place = min(bits, key=lambda module: (module not in missing.users, -bits[module].bit_count()))
    versions = api.versions(user)
    every = 0
    for each in bits.values():
        every |= each
    flags = [bool(every >> number & 1) for number in range(len(versions))]
    ranges = tuple((versions[first], versions[last]) for first, last in runs(flags))
    how = "imports" if missing.kind in {"import", "module"} and at_import else "uses"
    yield NameUser(package=user, module=place, ranges=ranges, how=how, later=not at_import)


def pattern_of(path: str) -> str:
    """Return a pattern of the targets that mean a name: code may reach a class by another module than the message."""
    owner, _, parameter = path.partition("(")
    if parameter:
        name = owner.rpartition(".")[2]
        last = rf"{name}(?:\.__init__)?" if name[:1].isupper() else rf"(?:\w+\.)?{name}"
        return rf"(?:^|\.){last}\({re.escape(parameter.rstrip(')'))}\)$"
    head, _, member = owner.rpartition(".")
    class_name = head.rpartition(".")[2]
    if class_name[:1].isupper():
        return rf"(?:^|\.){class_name}\.{re.escape(member)}$"
    return rf"^{re.escape(owner)}(?:\.|$)"
