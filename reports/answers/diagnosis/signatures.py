"""Loads signatures: known failures as rows with their pattern, conditions and cause, from ``signatures/*.toml``.

A signature never decides a verdict; it explains a measured failure.
"""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from cases.space.verdict import Phase
from matrix.errors import UserError
from matrix.known.known_problems import ThreadLink
from matrix.run import plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.run.plan import Term

PACKAGED: Final = Path(__file__).with_name("signatures")
ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9.]+)*")
QUOTES: Final = "\"'`"
# Patterns match text without quotes, because only some releases put `use_orig_params` between backticks.
NO_QUOTE: Final = re.compile(rf"\[\^(?:\\?[{QUOTES}])+\]")
QUOTED: Final = re.compile(rf"(?:\[(?:\\?[{QUOTES}])+\]|\\?[{QUOTES}])[?*+]?")

# Expressions to find the literal parts of a pattern: its pieces, literal pieces, and pieces that may hold alternatives.
PIECE: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)
PLAIN: Final = re.compile(r"\\[^a-zA-Z0-9]|[^\\.^$*+?{}()\[\]|]")
ALTERNATIVE: Final = re.compile(r"\\.|\[[^]]*\]|\([^()]*\)")
GROUP: Final = "(?:"


class CauseKind(StrEnum):
    """The party or component that causes a failure, and so who can repair it."""

    BUG = "bug"
    UNSUPPORTED = "unsupported"  # by design
    MISMATCH = "mismatch"  # versions that do not fit each other
    SETTING = "setting"  # the user's configuration
    MACHINE = "machine"
    OURS = "ours"  # a mistake in a check of this harness, repaired since the run

    @property
    def words(self) -> str:
        return KINDS[self]


KINDS: Final = {
    CauseKind.BUG: "a bug",
    CauseKind.UNSUPPORTED: "not supported, by design",
    CauseKind.MISMATCH: "versions that do not fit each other",
    CauseKind.SETTING: "a setting of the user's",
    CauseKind.MACHINE: "the machine",
    CauseKind.OURS: "a mistake of the harness, repaired since",
}


class Signature(BaseModel):
    """A known failure: how to recognise it, and its cause.

    ``pattern``, ``near`` and ``through`` are regular expressions. They match the lines of a log without its quotes.
    ``near`` must match the traceback and message of the line, or the few lines around it. ``through`` must match the
    traceback, if there is one. ``elsewhere`` must match a traceback that died outside the stack, in the user's own
    code or in another library, and also a log without a traceback or with frames of torch alone, unless somebody gave
    the message alone; without it, only a message that names a part of the stack is explained in the user's code.
    ``checks`` identify a failure that raises no exception: the checks that fail. ``phases``, ``when`` (written as
    ``--where``), ``versions`` and ``device`` narrow a signature: a known fact that contradicts them excludes it, an
    unknown one does not. ``fix`` is unverified advice from a thread. A pattern is compiled at its first use: compiling
    all of them takes longer than an answer should, so the tests do that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    pattern: str = ""
    near: str = ""
    through: str = ""
    elsewhere: str = ""
    checks: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    when: str = ""
    versions: dict[str, str] = {}
    device: Literal["", "cpu", "cuda"] = ""
    cause: str
    kind: CauseKind
    fix: str = ""
    links: tuple[ThreadLink, ...] = ()
    problems: tuple[str, ...] = ()

    @field_validator("id")
    @classmethod
    def is_kebab_case(cls, value: str) -> str:
        if not ID.fullmatch(value):
            raise ValueError(f"{value!r}: not an id; use lower-case letters, digits and hyphens")
        return value

    @field_validator("when")
    @classmethod
    def is_condition(cls, value: str) -> str:
        try:
            terms = plan.where(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        if any(term.name == "group" for term in terms):
            raise ValueError("group is a heading of the report, not a condition; name options instead")
        return value

    @field_validator("versions")
    @classmethod
    def are_specifiers(cls, versions: dict[str, str]) -> dict[str, str]:
        try:
            _ = [SpecifierSet(text) for text in versions.values()]
        except InvalidSpecifier as error:
            raise ValueError(str(error)) from None
        return versions

    @model_validator(mode="after")
    def is_complete(self) -> Signature:
        if not self.pattern and not self.checks:
            raise ValueError("neither pattern nor checks; give at least one of them")
        if not self.cause.strip():
            raise ValueError("cause is empty; explain the failure in a sentence")
        return self

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(unquoted(self.pattern), re.MULTILINE)

    @cached_property
    def near_regex(self) -> re.Pattern[str]:
        return re.compile(unquoted(self.near), re.MULTILINE)

    @cached_property
    def through_regex(self) -> re.Pattern[str]:
        return re.compile(unquoted(self.through), re.MULTILINE)

    @cached_property
    def elsewhere_regex(self) -> re.Pattern[str]:
        return re.compile(unquoted(self.elsewhere), re.MULTILINE)

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """Texts of which every match contains one. Searching for them is much cheaper than matching the pattern."""
        longest = [max(literals(each), key=len, default="") for each in alternatives(unquoted(self.pattern))]
        return tuple(longest) if all(longest) else ("",)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        return plan.where(self.when)

    def denies(self, versions: Mapping[str, str]) -> bool:
        """Tell if a version contradicts the signature; packages without a known version contradict nothing."""
        known = {name: each for name, each in self.specifiers.items() if versions.get(name)}
        return any(not each.contains(versions[name], prereleases=True) for name, each in known.items())

    @cached_property
    def specifiers(self) -> Mapping[str, SpecifierSet]:
        return {name: SpecifierSet(text) for name, text in self.versions.items()}


def unquoted(pattern: str) -> str:
    """Return the regular expression that matches text without quotes."""
    return QUOTED.sub("", NO_QUOTE.sub(".", pattern))


def alternatives(pattern: str) -> tuple[str, ...]:
    """Return the alternatives of a pattern, which may be in one group around all of it."""
    if pattern.startswith(GROUP) and pattern.endswith(")"):
        inner = split_alternatives(pattern.removeprefix(GROUP).removesuffix(")"))
        if all(map(is_balanced, inner)):
            return inner
    return split_alternatives(pattern)


def split_alternatives(pattern: str) -> tuple[str, ...]:
    """Split a pattern at each ``|`` outside of groups."""
    found, depth = [""], 0
    for piece in PIECE.findall(pattern):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if piece == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += piece
    return tuple(found)


def is_balanced(pattern: str) -> bool:
    """Tell if no group of a pattern closes before it opens, and none is left open."""
    depth = 0
    for piece in PIECE.findall(pattern):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if depth < 0:
            return False
    return depth == 0


def literals(pattern: str) -> Iterator[str]:
    """Yield texts that every match contains; nothing for patterns with alternatives or special groups."""
    if "|" in ALTERNATIVE.sub("", pattern) or "(?" in pattern.replace("(?:", ""):
        return
    depth, run = 0, ""
    for piece in PIECE.findall(pattern):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if PLAIN.fullmatch(piece) and depth == 0:
            run += piece[-1]
            continue
        yield run[:-1] if piece in "?*" or piece.startswith("{") else run  # the last character may be missing
        run = ""
    yield run


@cache
def load(folder: Path = PACKAGED) -> tuple[Signature, ...]:
    """Return all signatures of a folder, file by file.

    Raises:
        UserError: a file cannot be read, a signature is malformed, or two have the same id.
    """
    signatures = tuple(row for path in sorted(folder.glob("*.toml")) for row in rows(path))
    ids = [row.id for row in signatures]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{folder}: two signatures have the id {twice!r}; rename one")
    return signatures


@cache
def ours() -> tuple[Signature, ...]:
    """Return the signatures of mistakes of the harness."""
    return tuple(row for row in load() if row.kind is CauseKind.OURS)


def rows(path: Path) -> Iterator[Signature]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("signature")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: cannot be read as TOML ({error}); correct the file") from None
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{path}: no [[signature]] table; add one")
    for number, table in enumerate(tables, start=1):
        yield parse_signature(table, f"{path.name}: signature {number}")


def parse_signature(table: dict[str, Any], at: str) -> Signature:
    try:
        return Signature.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{at} ({table.get('id', '?')}): {place}: {first['msg']}") from None
