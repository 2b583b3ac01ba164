"""Loads silent errors that papers collected, with the faults that repeat them in this stack."""

from __future__ import annotations

import tomllib
from datetime import date  # noqa: TC003 - pydantic reads annotations
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field, ValidationError, field_validator, model_validator

from cases.injection.faults import FAULTS
from matrix.errors import UserError
from matrix.known.known_problems import Row, ThreadLink

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGED: Final = Path(__file__).with_name("published_errors.toml")


class KnownBy(StrEnum):
    """The way in which an error is known to belong to its source."""

    LISTED = "listed"  # by the source
    OPENED = "opened"  # upstream, by the source's authors
    MATCHED = "matched"  # by us: a thread of the same kind


class Publication(Row):
    """A paper: the day of reading, what was read, and what was not."""

    name: str
    link: str
    about: str
    on: date
    read: str
    unread: str = ""


class PublishedError(Row):
    """One error of a source, with the faults that repeat it, or the reason why it lies ``outside`` this stack."""

    source: str
    id: str
    link: ThreadLink
    known: KnownBy
    does: str
    faults: tuple[str, ...] = ()
    outside: str = ""

    @field_validator("faults")
    @classmethod
    def are_faults(cls, faults: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(faults) - set(FAULTS))
        if unknown:
            raise ValueError(f"unknown fault {unknown[0]!r}; see cases/injection")
        return faults

    @model_validator(mode="after")
    def is_decided(self) -> PublishedError:
        if bool(self.faults) == bool(self.outside):
            raise ValueError("an error needs either faults= or the reason outside=")
        return self


class PublishedErrors(Row):
    """The content of the file."""

    source: tuple[Publication, ...] = Field(min_length=1)
    error: tuple[PublishedError, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def names_sources(self) -> PublishedErrors:
        unknown = {each.source for each in self.error} - {each.name for each in self.source}
        if unknown:
            raise ValueError(f"unknown source {min(unknown)!r}")
        return self

    def of(self, source: Publication) -> tuple[PublishedError, ...]:
        return tuple(each for each in self.error if each.source == source.name)


def load(path: Path = PACKAGED) -> PublishedErrors:
    """Read the sources and their errors.

    Raises:
        UserError: the file cannot be read, or a row is malformed.
    """
    try:
        return PublishedErrors.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path}: cannot read published errors: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def faults(errors: Iterable[PublishedError]) -> tuple[str, ...]:
    """The faults of all errors, each once."""
    return tuple(dict.fromkeys(name for each in errors for name in each.faults))
