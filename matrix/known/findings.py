"""Loads findings: errors that the grid found in released versions, with the upstream threads or the search for them.

A finding is a problem that nobody reported to this project. A row states how a user meets it, and either the threads
that report it or the words of a search that found none. Behaviour that its authors chose, documented or deprecated is
no bug; its row links to the page or the code that says so.
"""

from __future__ import annotations

from datetime import date  # noqa: TC003 - pydantic reads annotations
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import Field, field_validator, model_validator

from matrix.known import known_problems
from matrix.known.conditions import Condition  # noqa: TC001 - pydantic reads annotations
from matrix.known.error_size import Size  # noqa: TC001 - pydantic reads annotations
from matrix.known.known_problems import Problem, Row, ThreadLink
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Container

PACKAGED: Final = Path(__file__).with_name("findings.toml")


class FindingKind(StrEnum):
    BUG = "bug"
    BY_DESIGN = "by design"  # the code states the choice
    DOCUMENTED = "documented"
    DEPRECATED = "deprecated"


class ThreadStatus(StrEnum):
    """The relation between a thread and a finding."""

    OPEN = "open"  # reports it, and no release fixes it
    REPORTED = "reported"  # reports it; another thread has the fix, or it is unknown
    FIXED = "fixed"  # fixes it in a release
    RELATED = "related"  # is about something near


class Thread(Row):
    """A thread with its status. ``release`` has the fix; ``about`` states what else the thread says."""

    link: ThreadLink
    status: ThreadStatus
    release: str = ""
    about: str = ""

    @model_validator(mode="after")
    def is_complete(self) -> Thread:
        if (self.status is ThreadStatus.FIXED) != bool(self.release):
            raise ValueError(f'{self.link}: a thread needs release= if its status is "fixed", and only then')
        if self.status is ThreadStatus.RELATED and not self.about:
            raise ValueError(f"{self.link}: a related thread needs about=, which states what it is about")
        return self


class Search(Row):
    """A search for threads: its day, the month of the newest threads that it covered, and its exact words."""

    on: date
    threads_to: str = Field(pattern=r"^\d{4}-\d{2}$")
    words: tuple[str, ...] = Field(min_length=1)


class Finding(Problem):
    """One error with one cause.

    ``meet`` states what a user does to meet it. ``documented`` is the page or code that states behaviour which is no
    bug. With ``stock_api = false`` the cells replace a part of a library, and the note states which.

    ``package`` has the error, in ``versions`` if its releases were tried, and else in the releases around which the
    cells of the row are red. ``when`` are the conditions on a job, one of which is enough; see ``conditions``. With
    ``numbers_only`` a logged or returned number is wrong, and the training is right. ``size`` is that of the error for
    models, adapters and data that people use.
    """

    kind: FindingKind
    package: str
    versions: str = ""
    when: tuple[Condition, ...] = Field(min_length=1)
    numbers_only: bool = False
    meet: str = Field(min_length=1)
    threads: tuple[Thread, ...] = ()
    searched: Search | None = None
    documented: str = Field("", pattern=r"^(https://\S+)?$")
    stock_api: bool = True
    size: Size | None = None

    @property
    def is_bug(self) -> bool:
        return self.kind is FindingKind.BUG

    @property
    def no_bug(self) -> str:
        return "" if self.is_bug else self.kind.value

    @property
    def is_reported(self) -> bool:
        return any(each.status is not ThreadStatus.RELATED for each in self.threads)

    @property
    def references(self) -> tuple[str, ...]:
        """The threads that report or fix it, and the page that documents the behaviour."""
        threads = (each.link for each in self.threads if each.status is not ThreadStatus.RELATED)
        return (*threads, *([self.documented] if self.documented else []))

    @field_validator("package")
    @classmethod
    def is_of_the_stack(cls, package: str) -> str:
        if package not in PACKAGES:
            raise ValueError(f"{package!r} is none of {', '.join(PACKAGES)}")
        return package

    @field_validator("versions")
    @classmethod
    def specifies(cls, versions: str) -> str:
        try:
            SpecifierSet(versions)
        except InvalidSpecifier as error:
            raise ValueError(str(error)) from None
        return versions

    @model_validator(mode="after")
    def is_supported(self) -> Finding:
        if self.links or self.entries:
            raise ValueError("a finding has threads= with a status each, instead of links= and entries=")
        if self.is_bug and not (self.is_reported or self.searched):
            raise ValueError(
                "no thread reports it; state the search that found none, searched = { on, threads_to, words }"
            )
        if self.is_bug == bool(self.documented):
            raise ValueError('documented= is the address that shows why a row is no bug; its kind is "bug" without it')
        if self.size and not self.is_bug:
            raise ValueError("size= is for errors; leave it out of behaviour that is no bug")
        if not self.stock_api and not self.note:
            raise ValueError("stock_api = false needs a note on how the cells differ from a user's calls")
        return self


def load(path: Path = PACKAGED, only: Container[str] | None = None) -> tuple[Finding, ...]:
    """Read a table of findings; ``only`` those with some ids.

    Raises:
        UserError: the file cannot be read, or a row is malformed.
    """
    return known_problems.read(path, Finding, table="finding", rows_are="findings", only=only)


def with_known_problems(only: Container[str] | None = None) -> tuple[Problem, ...]:
    """Return the packaged known problems and findings; ``only`` those with some ids.

    Raises:
        UserError: a file cannot be read, or a row is malformed.
    """
    return (*known_problems.load(only=only), *load(only=only))
