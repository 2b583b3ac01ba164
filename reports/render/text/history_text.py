"""Draws the nights of a case as text: for each set, the periods with one result, and what changed between them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final

from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.versions.moved_packages import moved_packages
from matrix.versions.sets import PACKAGES
from reports.results.verdict_style import look
from reports.results.wording import plain, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date

    import pandas as pd

STRIP: Final = 60  # nights that a line of signs shows
REASON: Final = 90


@dataclass(frozen=True, kw_only=True)
class Night:
    """The result of a cell on one night: the verdicts of its repeats, each once, and the facts of its first row."""

    day: date
    verdicts: tuple[str, ...]
    cause: str
    reason: str
    seconds: float
    memory_mib: float
    pins: dict[str, str]
    code: str

    @property
    def result(self) -> tuple[tuple[str, ...], str]:
        """What makes two nights alike."""
        return self.verdicts, self.cause

    @property
    def sign(self) -> str:
        return "~" if len(self.verdicts) > 1 else look(Verdict(self.verdicts[0])).sign


def lines(table: pd.DataFrame) -> Iterator[str]:
    """Yield the nights of a case, by device, hardware and set. The rows are in the order of nights."""
    for number, ((device, hardware, key), rows) in enumerate(sorted(by_set(table).items())):
        listed = nights(rows)
        if number:
            yield ""
        yield plain(f"{key} on {device}, {hardware}: {counted(len(listed), 'night')}")
        yield f"  {''.join(each.sign for each in listed[-STRIP:])}  to {listed[-1].day}"
        yield from period_lines(periods(listed))


def by_set(table: pd.DataFrame) -> dict[tuple[str, str, str], list[Mapping[Any, Any]]]:
    """Return the rows by device, hardware and set. Plain values: pandas groups categories a hundred times slower."""
    found: dict[tuple[str, str, str], list[Mapping[Any, Any]]] = {}
    for row in table.astype(object).to_dict("records"):
        found.setdefault((row["device"], row["hardware"], row["set"]), []).append(row)
    return found


def nights(rows: Sequence[Mapping[Any, Any]]) -> list[Night]:
    return [night([*of_night]) for _, of_night in groupby(rows, key=lambda row: row["night"])]


def night(rows: Sequence[Mapping[Any, Any]]) -> Night:
    red = next((row for row in rows if isinstance(row["cause"], str)), rows[0])
    return Night(
        day=rows[0]["night"].date(),
        verdicts=tuple(sorted({str(row["verdict"]) for row in rows})),
        cause=words(red["cause"]),
        reason=words(red["reason"]),
        seconds=float(rows[0]["seconds"]),
        memory_mib=float(rows[0]["memory_mib"]),
        pins={name: words(rows[0][name]) for name in PACKAGES},
        code=words(rows[0]["code"]),
    )


def words(value: object) -> str:
    """A text, which is not a number if the column has no value."""
    return value if isinstance(value, str) else ""


def periods(listed: Sequence[Night]) -> list[list[Night]]:
    """Group consecutive nights with the same result."""
    found: list[list[Night]] = []
    for each in listed:
        if found and found[-1][-1].result == each.result:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def period_lines(found: Sequence[Sequence[Night]]) -> Iterator[str]:
    yield period(found[0])
    for before, after in pairwise(found):
        yield f"    {changed(before[-1], after[0])}"
        yield period(after)


def period(of: Sequence[Night]) -> str:
    verdicts = " and ".join(look(Verdict(each)).word for each in of[0].verdicts)
    days = f"{of[0].day}" if len(of) == 1 else f"{of[0].day} to {of[-1].day}"
    why = f": {of[0].cause}: {trimmed(of[0].reason, REASON)}" if of[0].cause else ""
    cost = f"{middle(each.seconds for each in of):.1f} s"
    memory = middle(each.memory_mib for each in of)
    memory_words = f", {memory:.0f} MiB" if memory > 0 else ""  # NaN if nothing was measured
    return plain(f"  {days}  {verdicts}, {counted(len(of), 'night')}, {cost}{memory_words}{why}")


def middle(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def changed(before: Night, after: Night) -> str:
    """Return what differs between two nights besides the result."""
    parts = [str(each) for each in moved_packages(before.pins, after.pins)]
    if before.code != after.code:
        parts.append("the case code changed")
    return plain(", ".join(parts) or "no package of the six moved, and the case code is the same")
