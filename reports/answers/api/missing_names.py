"""Reads from a log which name was missing: of an import, an attribute, or an argument."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reports.answers.diagnosis.frames import Frame
    from reports.answers.diagnosis.symptoms import Symptom

OWNER: Final = r"(?P<owner>(?:\w+\.)*\w+)"
NAME: Final = r"['\"`]?(?P<name>\w+)['\"`]?"
PATTERNS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("import", rf"cannot import name {NAME} from (?:partially initialized module )?['\"`]?{OWNER}"),
        ("module", r"No module named ['\"`]?(?P<owner>\w+(?:\.\w+)*)\.(?P<name>\w+)"),
        ("import", rf"module ['\"`]?{OWNER}['\"`]? has no attribute {NAME}"),
        ("attribute", rf"type object ['\"`]?{OWNER}['\"`]? has no attribute {NAME}"),
        ("attribute", rf"['\"`]?\b{OWNER}['\"`]? object has no attribute {NAME}"),
        ("argument", rf"\b{OWNER}\(\) got an unexpected keyword argument {NAME}"),
        ("required", rf"\b{OWNER}\(\) missing \d+ required (?:positional|keyword-only) arguments?: {NAME}"),
        ("count", rf"\b{OWNER}\(\) takes (?:from \d+ to )?(?P<name>\d+) positional arguments? but \d+ "),
        ("argument", r"keys are not used by the HfArgumentParser: \[{NAME}".replace("{NAME}", NAME)),
    )
)  # fmt: skip
CONSTRUCTOR: Final = ("__init__", "__new__")
CALLED: Final = re.compile(r"\b((?:\w+\.)*[A-Z]\w+)\(")
PACKAGE_PATH: Final = re.compile(rf"(?:^|[/\\])(?P<path>(?:{'|'.join(PACKAGES)})(?:[/\\][\w.]+)*?)\.py$")


@dataclass(frozen=True, kw_only=True)
class MissingName:
    """A name that was missing.

    Attributes:
        kind: import, module, attribute, argument, required (an argument that the caller does not pass) or count.
        owner: what should have it: a dotted module, or the name of a class, method or function.
        name: the missing name; for ``count`` the number of arguments that the function takes.
        line: the line of the log.
        users: modules of the packages in the traceback, innermost first; empty if only the user's own code is in it.
    """

    kind: str
    owner: str
    name: str
    line: str
    users: tuple[str, ...] = ()


def missing_name(failure: Symptom) -> MissingName | None:
    """Return the name that ended a job, or the last one that a log mentions; None if no line does."""
    last: MissingName | None = None
    death = failure.death
    if death is not None:
        last = parsed(death.message, death.calls)
    return last or next(reversed([*mentioned(failure)]), None)


def mentioned(failure: Symptom) -> Iterator[MissingName]:
    for number, line in enumerate(failure.lines):
        if (
            "has no attribute" in line
            or "import name" in line
            or "No module named" in line
            or "() " in line
            or "HfArg" in line
        ) and (found := parsed(line, failure.log_failures.calls(number))):
            yield found


def parsed(line: str, calls: tuple[Frame, ...]) -> MissingName | None:
    for kind, pattern in PATTERNS:
        found = pattern.search(line)
        if found is not None:
            owner = found.groupdict().get("owner") or "HfArgumentParser"
            if owner in CONSTRUCTOR:  # Python 3.9 names no class
                owner = called_class(calls)
            return MissingName(kind=kind, owner=owner, name=found["name"], line=line.strip(), users=tuple(users(calls)))
    return None


def called_class(calls: tuple[Frame, ...]) -> str:
    """Return the class that the innermost line with a call constructs."""
    for each in reversed(calls):
        found = CALLED.findall(each.source)
        if found:
            return f"{found[-1].rpartition('.')[2]}.__init__"
    return ""


def users(calls: tuple[Frame, ...]) -> Iterator[str]:
    for each in reversed(calls):
        found = PACKAGE_PATH.search(each.path)
        if found is not None:
            yield found["path"].replace("\\", "/").replace("/", ".").removesuffix(".__init__")
