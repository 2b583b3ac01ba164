"""The quarantine: known red and flaky cells that raise no alarm in a comparison, each with an owner and an end."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cases.space.plural import counted
from matrix.errors import UserError
from matrix.keys import CellKey
from reports.answers.diff.changes import ChangeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from reports.answers.diff.changes import CellChange, ResultDiff

FILE: Final = "quarantine.toml"
NIGHTS: Final = 14
TABLE: Final = "cells"
COVERED: Final = frozenset({ChangeKind.REGRESSED, ChangeKind.FLAKY})
Words = Annotated[str, Field(min_length=1)]


class QuarantineKind(StrEnum):
    """The state that an entry expects of its cells."""

    RED = "red"
    FLAKY = "flaky"


class QuarantineEntry(BaseModel):
    """Cells that raise no alarm until a date: those of a device whose case and set match the patterns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    case: Words
    sets: Words
    device: Literal["cpu", "cuda"]
    kind: QuarantineKind
    reason: Words
    owner: Words
    since: date
    expires: date

    @model_validator(mode="after")
    def ends_after_it_begins(self) -> Self:
        if self.expires <= self.since:
            raise ValueError(f"expires {self.expires} is not after since {self.since}")
        return self

    def covers(self, change: CellChange, device: str) -> bool:
        return (
            device == self.device
            and fnmatchcase(change.case, self.case)
            and fnmatchcase(change.new_set or change.base_set, self.sets)
        )

    @property
    def words(self) -> str:
        return f"{self.case} on {self.sets}, {self.device}, {self.kind} (owner: {self.owner})"


@dataclass(frozen=True, kw_only=True)
class Quarantine:
    """The entries that count today, and those that have expired."""

    entries: tuple[QuarantineEntry, ...] = ()
    expired: tuple[QuarantineEntry, ...] = ()


def load(path: Path, *, today: date, is_optional: bool = True) -> Quarantine:
    """Read a quarantine; a missing file is an empty one if it is optional.

    Raises:
        UserError: the file cannot be read, or an entry is bad.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if is_optional:
            return Quarantine()
        raise UserError(f"{path}: no such file; name a quarantine with --quarantine") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the quarantine cannot be read: {error}") from None
    return parsed(text, name=path.name, today=today)


def parsed(text: str, *, name: str, today: date) -> Quarantine:
    """Parse the entries ``[[cells]]`` of a quarantine.

    Raises:
        UserError: the text is not TOML, or an entry is bad.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name}: not valid TOML: {error}") from None
    rows = document.get(TABLE, [])
    unknown = sorted(document.keys() - {TABLE})
    if unknown or not isinstance(rows, list):
        raise UserError(f"{name}: {unknown[0] if unknown else TABLE}: expected only tables [[{TABLE}]]")
    entries = [entry(row, at=f"{name}: {TABLE}[{number}]") for number, row in enumerate(rows, start=1)]
    return Quarantine(
        entries=tuple(each for each in entries if each.expires >= today),
        expired=tuple(each for each in entries if each.expires < today),
    )


def entry(row: Any, *, at: str) -> QuarantineEntry:
    try:
        return QuarantineEntry.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([at, *map(str, first["loc"])])
        fields = ", ".join(QuarantineEntry.model_fields)
        raise UserError(f"{place}: {first['msg'].removeprefix('Value error, ')}; an entry has {fields}") from None


def applied(
    diff: ResultDiff,
    quarantine: Quarantine,
    *,
    recent: Mapping[tuple[str, str], Sequence[frozenset[str]]] | None = None,
    nights: int = NIGHTS,
) -> ResultDiff:
    """Return the comparison with the quarantined cells marked, and alarms about entries that no longer hold.

    ``recent`` has the verdicts of each of the last nights, by set and case.
    """
    device = diff.new.device
    return replace(
        diff,
        changes=tuple(marked(each, quarantine.entries, device) for each in diff.changes),
        alarms=(*diff.alarms, *alarms(diff, quarantine, recent or {}, nights)),
        notes=(*diff.notes, *(f"quarantine expired on {each.expires}: {each.words}" for each in quarantine.expired)),
    )


def marked(change: CellChange, entries: Iterable[QuarantineEntry], device: str) -> CellChange:
    if change.kind not in COVERED:
        return change
    reason = next((each.reason for each in entries if each.covers(change, device)), "")
    return replace(change, quarantine=reason) if reason else change


def alarms(
    diff: ResultDiff,
    quarantine: Quarantine,
    recent: Mapping[tuple[str, str], Sequence[frozenset[str]]],
    nights: int,
) -> Iterable[str]:
    for each in quarantine.entries:
        covered = [change for change in diff.changes if each.covers(change, diff.new.device)]
        if each.kind is QuarantineKind.RED:
            over = [change for change in covered if is_green(change)]
            state = "green"
        else:
            over = [change for change in covered if is_stable(recent.get((change.new_set, change.case), ()), nights)]
            state = f"stable for {counted(nights, 'night')}"
        if over:
            names = ", ".join(str(CellKey(change.new_set, change.case)) for change in over)
            yield f"quarantined as {each.kind}, but {state}: {names}; remove or narrow the entry {each.words}"


def is_green(change: CellChange) -> bool:
    return change.new is not None and change.new.ran and not change.new.is_red and not change.new.is_flaky


def is_stable(verdicts: Sequence[frozenset[str]], nights: int) -> bool:
    """Tell if each of enough nights had the one same verdict."""
    return len(verdicts) >= nights and len(frozenset().union(*verdicts)) == 1
