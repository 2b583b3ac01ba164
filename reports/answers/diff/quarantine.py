"""The quarantine: known red and flaky cells that raise no alarm in a comparison, each with an owner and an end."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from cases.space.verdict import RED
from matrix.errors import UserError
from matrix.keys import CellKey
from reports.answers.diff.changes import ChangeKind
from reports.answers.diff.quarantine_entry import AlarmKind, EntryAlarm, QuarantineEntry, QuarantineKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from reports.answers.diff.changes import CellChange, ResultDiff

FILE: Final = "quarantine.toml"
NIGHTS: Final = 14
TABLE: Final = "cells"
COVERED: Final = frozenset({ChangeKind.REGRESSED, ChangeKind.OTHER_REASON, ChangeKind.FLAKY})


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
    )


def marked(change: CellChange, entries: Iterable[QuarantineEntry], device: str) -> CellChange:
    if change.kind not in COVERED:
        return change
    covering = entry_of(change, entries, device)
    return replace(change, quarantine=covering.reason) if covering else change


def entry_of(change: CellChange, entries: Iterable[QuarantineEntry], device: str) -> QuarantineEntry | None:
    return next((each for each in entries if each.covers(cell_of(change), device)), None)


def cell_of(change: CellChange) -> CellKey:
    return CellKey(change.new_set or change.base_set, change.case)


def alarms(
    diff: ResultDiff,
    quarantine: Quarantine,
    recent: Mapping[tuple[str, str], Sequence[frozenset[str]]],
    nights: int,
) -> Iterable[EntryAlarm]:
    device = diff.new.device
    for each in quarantine.entries:
        covered = [change for change in diff.changes if each.covers(cell_of(change), device)]
        if each.kind is QuarantineKind.RED:
            kind, over = AlarmKind.GREEN, [change for change in covered if change.is_green]
        else:
            kind = AlarmKind.STABLE
            over = [change for change in covered if is_stable(recent.get((change.new_set, change.case), ()), nights)]
        if over:
            yield EntryAlarm(kind=kind, entry=each, cells=cells(over), nights=nights)
        if device == each.device and is_gone(each, covered, recent, nights):
            yield EntryAlarm(kind=AlarmKind.GONE, entry=each, nights=nights)
    for each in quarantine.expired:
        covered = [change for change in diff.changes if each.covers(cell_of(change), device)]
        red = [change for change in covered if change.new is not None and not RED.isdisjoint(change.new.runs)]
        alone = [change for change in red if not entry_of(change, quarantine.entries, device)]
        green = [change for change in covered if change.is_green]
        yield EntryAlarm(kind=AlarmKind.EXPIRED, entry=each, cells=cells(alone), green=cells(green))


def cells(changes: Iterable[CellChange]) -> tuple[CellKey, ...]:
    return tuple(map(cell_of, changes))


def is_gone(
    entry: QuarantineEntry,
    covered: Iterable[CellChange],
    recent: Mapping[tuple[str, str], Sequence[frozenset[str]]],
    nights: int,
) -> bool:
    """Tell if no cell of an entry ran tonight, nor on any of enough nights before."""
    if any(each.new is not None and each.new.ran for each in covered):
        return False
    known = max(map(len, recent.values()), default=0)
    return known >= nights and not any(entry.covers(CellKey(*cell), entry.device) for cell in recent)


def is_stable(verdicts: Sequence[frozenset[str]], nights: int) -> bool:
    """Tell if each of enough nights had the one same verdict."""
    return len(verdicts) >= nights and len(frozenset().union(*verdicts)) == 1
