"""Reads from a log which names were missing: of an import, an attribute, or an argument."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reports.answers.diagnosis.frames import Frame
    from reports.answers.diagnosis.symptoms import Symptom

OWNER: Final = r"(?P<owner>(?:\w+\.)*\w+)"
NAME: Final = r"['\"`]?(?P<name>\w+)['\"`]?"
PARSER: Final = "HfArgumentParser"
PATTERNS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("import", rf"[Cc]annot import name {NAME} from (?:partially initialized module )?['\"`]?{OWNER}"),
        ("import", rf"[Cc]annot import name {NAME}"),
        ("module", r"No module named ['\"`]?(?P<owner>\w+(?:\.\w+)*)\.(?P<name>\w+)"),
        ("import", rf"module ['\"`]?{OWNER}['\"`]? has no attribute {NAME}"),
        ("import", rf"Can'?t get attribute {NAME} on <module ['\"`]?{OWNER}"),
        ("value", rf"{NAME} is not a valid {OWNER}"),
        ("attribute", rf"type object ['\"`]?{OWNER}['\"`]? has no attribute {NAME}"),
        ("attribute", rf"['\"`]?\b{OWNER}['\"`]?(?: object)? has no attribute {NAME}"),
        ("argument", rf"\b{OWNER}\(\)\s*got an unexpected keyword argument\s*{NAME}"),
        ("argument", rf"unexpected keyword argument\s*{NAME}"),
        ("argument", rf"ValueError: {OWNER}\b.* doesn'?t have an? {NAME} key"),
        ("required", rf"\b{OWNER}\(\) missing \d+ required (?:positional|keyword-only) arguments?: {NAME}"),
        ("count", rf"\b{OWNER}\(\) takes (?:from \d+ to )?(?P<name>\d+) positional arguments? but \d+ "),
        ("model", r"has model type ['\"`]?(?P<name>[\w-]+)['\"`]? but Transformers does not recognize"),
        ("field", rf"(?:keys|arguments) are not used by the {PARSER}: \[['\"`]?(?:--)?(?P<name>\w+)"),
        ("field", r"error: unrecognized arguments: --(?P<name>\w+)"),
        ("word", rf"NameError: name {NAME} is not defined"),
        ("class", r"(?:[Cc]lass|[Tt]ype) ['\"`]?(?P<name>[A-Z]\w+)['\"`]? (?:does not exist|not found)"),
        ("entry", r"^\s*KeyError: ['\"`]?(?P<name>[a-z]\w+)['\"`]?\s*$"),
    )
)  # fmt: skip
# A line with none of these states no name; most lines are done with by this test.
WORDS: Final = (
    *("has no attribute", "import name", "No module named", "() ", "unexpected keyword", PARSER, "KeyError"),
    *("has model type", "unrecognized arguments", "is not defined", "does not exist", "not found"),
    *("is not a valid", "get attribute", " have a"),
)
CONSTRUCTOR: Final = ("__init__", "__new__", "")
BARE_INIT: Final = re.compile(r"(?:^|(?<=\.))init$")  # Markdown takes the underscores of a pasted message for bold type
CALLED: Final = re.compile(r"\b((?:\w+\.)*[A-Z]\w+)\(")
MODEL_TYPES: Final = "transformers.models"
AUTO_CLASS: Final = re.compile(r"\bAuto[A-Z]\w+|[/\\]auto[/\\]")
LINES_BEFORE: Final = 12  # of a message, in which a pasted log without frames may still show the call
PACKAGE_PATH: Final = re.compile(rf"(?:^|[/\\])(?P<path>(?:{'|'.join(PACKAGES)})(?:[/\\][\w.]+)*?)\.py$")


@dataclass(frozen=True, kw_only=True)
class MissingName:
    """A name that was missing.

    Attributes:
        kind: import, module, attribute, argument, required (an argument that the caller does not pass), count, model
            (a model type, whose name its module has), field (an option of a command line or a configuration), word (a
            name that code does not define), class (a class that a library looks up by its name), or value (of an
            enumeration).
        owner: what should have it: a dotted module, or the name of a class, method or function; empty if the message
            does not state it.
        name: the missing name; for ``count`` the number of arguments that the function takes.
        line: the line of the log.
        users: modules of the packages in the traceback, innermost first; empty if only the user's own code is in it.
    """

    kind: str
    owner: str
    name: str
    line: str
    users: tuple[str, ...] = ()


def missing_names(failure: Symptom) -> Iterator[MissingName]:
    """Yield the name that ended a job, then the others that its log mentions, the last one first."""
    death = failure.death
    if death is not None:
        found = parsed(death.message, death.calls)
        if found is not None and (found.owner or found.kind != "argument"):
            yield found
    yield from reversed([*mentioned(failure)])


def mentioned(failure: Symptom) -> Iterator[MissingName]:
    recovered = failure.log_failures.recovered
    for number, line in enumerate(failure.bare_lines):
        if number not in recovered and any(each in line for each in WORDS):
            calls = failure.log_failures.calls(number)
            found = parsed(line, calls, around(failure.bare_lines, number))
            if found is not None:
                yield found


def around(lines: Sequence[str], number: int) -> list[str]:
    """Return the lines before a message; those behind it go first, as a report quotes the call there only at times."""
    behind = lines[number + 1 : number + 1 + LINES_BEFORE]
    return [*reversed(behind), *lines[max(0, number - LINES_BEFORE) : number]]


def parsed(line: str, calls: tuple[Frame, ...], before: Sequence[str] = ()) -> MissingName | None:
    """Return the name that a line misses. ``before`` are the lines around it, for a log without frames."""
    for kind, pattern in PATTERNS:
        found = pattern.search(line)
        if found is None:
            continue
        owner = BARE_INIT.sub("__init__", found.groupdict().get("owner") or "")
        if kind == "argument" and owner in CONSTRUCTOR:  # Python 3.9 names no class
            owner = called_class([*before, *(each.source for each in calls)])
        elif kind == "argument" and "." not in owner and owner[:1].isupper():
            owner = f"{owner}.__init__"
        if kind == "entry" and not any(AUTO_CLASS.search(f"{each.path} {each.source}") for each in calls):
            return None
        return MissingName(
            kind="model" if kind == "entry" else kind,
            owner=MODEL_TYPES if kind in {"model", "entry"} else owner,
            name=found["name"],
            line=line.strip(),
            users=tuple(users(calls)),
        )
    return None


def called_class(lines: Sequence[str]) -> str:
    """Return the class that the last line with a call constructs."""
    for each in reversed(lines):
        found = CALLED.findall(each)
        if found:
            return f"{found[-1].rpartition('.')[2]}.__init__"
    return ""


def users(calls: tuple[Frame, ...]) -> Iterator[str]:
    for each in reversed(calls):
        found = PACKAGE_PATH.search(each.path)
        if found is not None:
            yield found["path"].replace("\\", "/").replace("/", ".").removesuffix(".__init__")
