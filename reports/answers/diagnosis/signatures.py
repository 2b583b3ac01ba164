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
from matrix.known.known_problems import THREAD
from matrix.run import plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.run.plan import Term

PACKAGED: Final = Path(__file__).with_name("signatures")
ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9.]+)*")
QUOTES: Final = "\"'`"
# Texts are compared without quotes: versions differ in whether they put `use_orig_params` between backticks.
NO_QUOTE: Final = re.compile(rf"\[\^(?:\\?[{QUOTES}])+\]")
QUOTED: Final = re.compile(rf"(?:\[(?:\\?[{QUOTES}])+\]|\\?[{QUOTES}])[?*+]?")

# For the literal parts of a regular expression: its pieces, which of them are text, and what may hold alternatives.
PIECE: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\{\d*,?\d*\}|.", re.DOTALL)
PLAIN: Final = re.compile(r"\\[^a-zA-Z0-9]|[^\\.^$*+?{}()\[\]|]")
ALTERNATIVE: Final = re.compile(r"\\.|\[[^]]*\]|\([^()]*\)")


class CauseKind(StrEnum):
    """What is to be done about it depends on whose it is."""

    BUG = "bug"
    UNSUPPORTED = "unsupported"  # by design
    MISMATCH = "mismatch"  # versions that do not fit each other
    SETTING = "setting"  # the user's configuration
    MACHINE = "machine"
    OURS = "ours"  # of a check of this harness, repaired since the run

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
    """``pattern``, ``near`` and ``through`` are regular expressions, compared line by line and without quotes.

    ``near`` must be in what belongs to the line: its traceback and message, or the few lines around it. ``through``
    must be in its traceback, if there is one. A failure that raises nothing is known by its missed ``checks``.
    ``phases``, ``when`` (written as ``--where``), ``versions`` and ``device`` narrow a row: what contradicts them
    excludes it, what is unknown does not. ``fix`` is advice that a thread gives; only a cell proves one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    pattern: str = ""
    near: str = ""
    through: str = ""
    checks: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    when: str = ""
    versions: dict[str, str] = {}
    device: Literal["", "cpu", "cuda"] = ""
    cause: str
    kind: CauseKind
    fix: str = ""
    links: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @field_validator("id")
    @classmethod
    def is_kebab_case(cls, value: str) -> str:
        if not ID.fullmatch(value):
            raise ValueError(f"{value!r}: an id is of small letters, digits and hyphens")
        return value

    @field_validator("pattern", "near", "through")
    @classmethod
    def compiles(cls, pattern: str) -> str:
        try:
            empty = pattern and re.compile(unquoted(pattern)).search("")
        except re.error as error:
            raise ValueError(f"no regular expression once its quotes are left out: {error}") from None
        if empty:
            raise ValueError(f"{pattern!r}: any text would do")
        return pattern

    @field_validator("when")
    @classmethod
    def is_a_where(cls, value: str) -> str:
        try:
            terms = plan.where(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        if any(term.name == "group" for term in terms):
            raise ValueError("a group is a heading of the report, and no condition")
        return value

    @field_validator("versions")
    @classmethod
    def are_specifiers(cls, versions: dict[str, str]) -> dict[str, str]:
        try:
            _ = [SpecifierSet(text) for text in versions.values()]
        except InvalidSpecifier as error:
            raise ValueError(str(error)) from None
        return versions

    @field_validator("links")
    @classmethod
    def are_threads(cls, links: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [link for link in links if not THREAD.fullmatch(link)]
        if wrong:
            raise ValueError(f"{wrong[0]!r} is no thread: owner/repository#number, or an https address")
        return links

    @model_validator(mode="after")
    def shows_somewhere(self) -> Signature:
        if not self.pattern and not self.checks:
            raise ValueError("nothing to know it by: give a pattern, or the checks that it misses")
        if not self.cause.strip():
            raise ValueError("a signature says the cause")
        return self

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(unquoted(self.pattern), re.MULTILINE)

    @cached_property
    def nearby(self) -> re.Pattern[str]:
        return re.compile(unquoted(self.near), re.MULTILINE)

    @cached_property
    def passed(self) -> re.Pattern[str]:
        return re.compile(unquoted(self.through), re.MULTILINE)

    @cached_property
    def anchor(self) -> str:
        """The longest text that is in every match; looking for it is much cheaper than matching."""
        return max(literals(unquoted(self.pattern)), key=len, default="")

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        return plan.where(self.when)

    def denies(self, versions: Mapping[str, str]) -> bool:
        """Whether it is known not to happen with these versions; of packages that are not named, nothing is."""
        there = {name: each for name, each in self.specifiers.items() if versions.get(name)}
        return any(not each.contains(versions[name], prereleases=True) for name, each in there.items())

    @cached_property
    def specifiers(self) -> Mapping[str, SpecifierSet]:
        return {name: SpecifierSet(text) for name, text in self.versions.items()}


def unquoted(pattern: str) -> str:
    """The regular expression for text without quotes."""
    return QUOTED.sub("", NO_QUOTE.sub(".", pattern))


def literals(pattern: str) -> Iterator[str]:
    """Stretches of plain text that every match has; none where that is not plain to see."""
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
    """Every row, file by file.

    Raises:
        UserError: a file cannot be read, a row is malformed, or two have one id.
    """
    found = tuple(row for path in sorted(folder.glob("*.toml")) for row in rows(path))
    ids = [row.id for row in found]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{folder}: two signatures are called {twice!r}")
    return found


def rows(path: Path) -> Iterator[Signature]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("signature")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: no table of signatures: {error}") from None
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{path}: no table of signatures: there is no [[signature]] in it")
    for number, table in enumerate(tables, start=1):
        yield signature(table, f"{path.name}: signature {number}")


def signature(table: dict[str, Any], at: str) -> Signature:
    try:
        return Signature.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{at} ({table.get('id', '?')}): {place}: {first['msg']}") from None
