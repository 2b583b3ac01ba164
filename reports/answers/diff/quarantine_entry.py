"""The values of the quarantine: its entries, and alarms about those that no longer hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cases.space.plural import counted

if TYPE_CHECKING:
    from matrix.keys import CellKey

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
    device: Literal["cpu", "cuda", "cuda-gloo"]
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

    def covers(self, cell: CellKey, device: str) -> bool:
        return device == self.device and fnmatchcase(cell.case, self.case) and fnmatchcase(cell.set, self.sets)

    @property
    def words(self) -> str:
        return f"{self.case} on {self.sets}, {self.device}, {self.kind} (owner: {self.owner})"


class AlarmKind(StrEnum):
    """Why an entry no longer holds."""

    GREEN = "green"
    STABLE = "stable"
    EXPIRED = "expired"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class EntryAlarm:
    """An entry that no longer holds.

    ``cells`` show it: they are green, or stable for so many ``nights``. Those of an expired entry are red in any run,
    and no other entry covers them; ``green`` are its green cells. An entry that is gone has none: no cell that it
    covers ran for so many nights.
    """

    kind: AlarmKind
    entry: QuarantineEntry
    cells: tuple[CellKey, ...] = ()
    green: tuple[CellKey, ...] = ()
    nights: int = 0

    def __str__(self) -> str:
        if self.kind is AlarmKind.EXPIRED:
            return f"quarantine expired on {self.entry.expires}: {self.entry.words}"
        if self.kind is AlarmKind.GONE:
            nights = counted(self.nights, "night")
            return f"quarantined, but no such cell ran for {nights}; remove the entry {self.entry.words}"
        state = "green" if self.kind is AlarmKind.GREEN else f"stable for {counted(self.nights, 'night')}"
        names = ", ".join(map(str, self.cells))
        return f"quarantined as {self.entry.kind}, but {state}: {names}; remove or narrow the entry {self.entry.words}"
