"""Compares two results cell by cell. Reads and writes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Verdict
from matrix.versions.moved_packages import moved_packages
from reports.answers.diagnosis.diagnose import UNEXPLAINED, diagnose, is_ours, symptom
from reports.answers.diff.changes import (
    RAN,
    CellCause,
    CellChange,
    ChangeKind,
    DiffSide,
    ResultDiff,
    SetPair,
    SideResult,
)
from reports.answers.diff.numbers import median_slowdown, moves, warnings
from reports.answers.diff.packages import suspects
from reports.results.wording import first_line, gist

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import Outcome
    from reports.answers.diagnosis.signatures import Signature

NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
OURS: Final = "only because of a mistake in a check, repaired since"
OTHER_HARDWARE: Final = "measured on other hardware"
OTHER_CODE: Final = "measured with other case code, so the verdicts are not comparable; run both sides again"
BOTH: Final = "on both sides"
ABSENCES: Final = {Verdict.SKIP: "skipped", Verdict.LOST: "lost", Verdict.BLOCKED: "blocked", None: "not run"}


@dataclass(frozen=True, kw_only=True)
class Comparer:
    """Compares the cells of two sides; each red outcome is diagnosed once."""

    base: DiffSide
    new: DiffSide
    pair: SetPair
    across_hardware: bool
    rows: Sequence[Signature] | None

    def changes(self) -> Iterator[CellChange]:
        for case in self.cases:
            base, new = side_result(self.base, case, self.pair.base), side_result(self.new, case, self.pair.new)
            if base is not None or new is not None:
                yield self.change(case, base, new)

    @property
    def cases(self) -> Iterable[str]:
        return dict.fromkeys((*self.new.matrix.cases, *self.base.matrix.cases))

    def change(self, case: str, base: SideResult | None, new: SideResult | None) -> CellChange:
        base_cause, new_cause = self.cause(base, self.base_pins), self.cause(new, self.new_pins)
        kind, reason = classified(base, new, base_cause, new_cause, across_hardware=self.across_hardware)
        red = new if new_cause is not None else base
        cause = new_cause or base_cause
        return CellChange(
            kind=kind,
            case=case,
            base_set=self.pair.base,
            new_set=self.pair.new,
            base=base,
            new=new,
            reason=reason,
            cause=cause,
            base_cause=base_cause,
            suspects=suspects(red.outcome, cause.signature, self.pair.moves)
            if cause is not None and red is not None and red.outcome is not None
            else (),
        )

    def cause(self, side: SideResult | None, pins: Mapping[str, str]) -> CellCause | None:
        if side is None or side.outcome is None or side.outcome.verdict not in RED or not side.ran:
            return None
        best = next(iter(diagnose(symptom(side.outcome, pins), self.rows)), None)
        if best is None:
            return CellCause(title=f"{UNEXPLAINED}: {gist(side.outcome)}")
        return CellCause(title=best.signature.id, signature=best.signature)

    @cached_property
    def base_pins(self) -> Mapping[str, str]:
        return pins(self.base, self.pair.base)

    @cached_property
    def new_pins(self) -> Mapping[str, str]:
        return pins(self.new, self.pair.new)


def compare(
    base: DiffSide,
    new: DiffSide,
    pairs: Sequence[tuple[str, str]],
    *,
    across_hardware: bool = False,
    rows: Sequence[Signature] | None = None,
) -> ResultDiff:
    """Compare the cells of each pair of sets. ``rows`` are the signatures, all by default.

    An empty key of a pair stands for a side without the set.
    """
    set_pairs = tuple(set_pair(base, new, keys) for keys in pairs)
    changes = [
        change
        for pair in set_pairs
        for change in Comparer(base=base, new=new, pair=pair, across_hardware=across_hardware, rows=rows).changes()
    ]
    slowdown = median_slowdown(green_pairs(changes))
    return ResultDiff(
        base=base,
        new=new,
        pairs=set_pairs,
        changes=tuple(with_warnings(each, slowdown or 1.0) for each in changes),
        slowdown=slowdown,
        notes=tuple(dict.fromkeys((*base.notes, *new.notes))),
    )


def green_pairs(changes: Iterable[CellChange]) -> Iterator[tuple[Outcome, Outcome]]:
    for each in changes:
        if each.kind is ChangeKind.GREEN and each.base and each.new and each.base.outcome and each.new.outcome:
            yield each.base.outcome, each.new.outcome


def with_warnings(change: CellChange, slowdown: float) -> CellChange:
    found = [warning for base, new in green_pairs([change]) for warning in warnings(base, new, slowdown=slowdown)]
    return replace(change, warnings=tuple(found)) if found else change


def with_moved_checks(change: CellChange) -> CellChange:
    """Return a change with the checks that moved a lot within their tolerance."""
    found = [move for base, new in green_pairs([change]) for move in moves(base, new)]
    return replace(change, moved_checks=tuple(found)) if found else change


def side_result(side: DiffSide, case: str, key: str) -> SideResult | None:
    """Return a cell's result on one side; None if that side does not have the cell."""
    matrix = side.matrix
    if not key or not matrix.belongs(case, key):
        return None
    verdict, outcome = matrix.verdict(case, key), matrix.lookup(case, key)
    if outcome is not None and is_ours(outcome, pins(side, key)):
        return SideResult(verdict=verdict, outcome=outcome, why_unknown=OURS)
    runs = tuple(each for each in matrix.repeats.get((case, key), ()) if each in RAN)
    if runs:  # a repeat that was lost says nothing about the others
        worst = verdict if verdict in RAN else Verdict.PASS
        return SideResult(verdict=worst, runs=runs, outcome=outcome)
    reason = first_line(outcome.reason) if outcome is not None else matrix.blocked.get(key, "")
    return SideResult(verdict=verdict, outcome=outcome, why_unknown=reason)


def classified(
    base: SideResult | None,
    new: SideResult | None,
    base_cause: CellCause | None,
    new_cause: CellCause | None,
    *,
    across_hardware: bool,
) -> tuple[ChangeKind, str]:
    """Return the class of a cell, and the reason if it is unknown."""
    if base is None or new is None:
        return (ChangeKind.NEW if base is None else ChangeKind.GONE), ""
    if reason := why_unknown(base, new, across_hardware=across_hardware):
        return ChangeKind.UNKNOWN, reason
    if base.is_flaky or new.is_flaky:
        return ChangeKind.FLAKY, ""
    if not base.is_red:
        return (ChangeKind.REGRESSED if new.is_red else ChangeKind.GREEN), ""
    if not new.is_red:
        return ChangeKind.FIXED, ""
    return (ChangeKind.SAME_REASON if same_cause(base_cause, new_cause) else ChangeKind.OTHER_REASON), ""


def has_other_code(base: SideResult, new: SideResult) -> bool:
    """Tell if a case changed between two results: its new verdict may come from a new check instead of the stack."""
    if base.outcome is None or new.outcome is None:
        return False
    return not base.outcome.has_same_code(new.outcome)


def why_unknown(base: SideResult, new: SideResult, *, across_hardware: bool) -> str:
    """Return why two results cannot be compared; empty if they can."""
    sides = {"new": new, "base": base}
    absent = {name: side for name, side in sides.items() if not side.ran}
    if len(absent) == len(sides) and (new.verdict, new.why_unknown) == (base.verdict, base.why_unknown):
        return absence_words(new, BOTH)
    if absent:
        return "; ".join(absence_words(side, f"on the {name} side") for name, side in absent.items())
    if not across_hardware and base.outcome and new.outcome and base.outcome.hardware != new.outcome.hardware:
        return OTHER_HARDWARE
    return OTHER_CODE if base.is_red != new.is_red and has_other_code(base, new) else ""


def absence_words(side: SideResult, where: str) -> str:
    """Return why a side did not run, e.g. ``skipped on the new side: this torch has no FSDP2``."""
    words = f"{ABSENCES.get(side.verdict, 'red')} {where}"
    return f"{words}: {side.why_unknown}" if side.why_unknown else words


def same_cause(one: CellCause | None, other: CellCause | None) -> bool:
    """Tell if two causes are the same signature, or the same message up to its numbers."""
    return one is not None and other is not None and NUMBER.sub("#", one.title) == NUMBER.sub("#", other.title)


def set_pair(base: DiffSide, new: DiffSide, keys: tuple[str, str]) -> SetPair:
    """Return a pair of sets with the packages that moved: those of the locks, else those of the pins."""
    old_key, new_key = keys
    if not old_key or not new_key:
        return SetPair(base=old_key, new=new_key)
    old, now = base.locks.get(old_key), new.locks.get(new_key)
    if old is None or now is None:
        unknown = " and ".join(key for key, lock in ((old_key, old), (new_key, now)) if lock is None)
        note = f"the lock of {unknown} is not known here, so only the six packages were compared"
        return SetPair(
            base=old_key, new=new_key, moves=moved_packages(pins(base, old_key), pins(new, new_key)), note=note
        )
    return SetPair(base=old_key, new=new_key, moves=moved_packages(old, now))


def pins(side: DiffSide, key: str) -> Mapping[str, str]:
    return next((each.pins for each in side.matrix.sets if each.key == key), {})
