"""The values of a comparison of two results."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.outcome import Outcome
    from matrix.versions.moved_packages import MovedPackage
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.diff.numbers import NumberWarning
    from reports.answers.diff.quarantine_entry import EntryAlarm
    from reports.results.grid import Grid

RAN: Final = RED | {Verdict.PASS}


class ChangeKind(StrEnum):
    """The class of a compared cell."""

    REGRESSED = "regressed"
    FLAKY = "flaky"
    OTHER_REASON = "still red for another reason"
    SAME_REASON = "still red for the same reason"
    FIXED = "fixed"
    NEW = "new"
    GONE = "gone"
    UNKNOWN = "unknown"
    GREEN = "still green"


@dataclass(frozen=True, kw_only=True)
class DiffSide:
    """One side of a comparison. ``locks`` has the versions of each set's lock, for sets whose lock is known."""

    name: str
    device: str
    hardware: str
    matrix: Grid
    locks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SideResult:
    """The result of a cell on one side. ``runs`` are the verdicts of the repeats that ran to a verdict of the stack.

    ``why_unknown`` is empty if the cell ran.
    """

    verdict: Verdict | None
    runs: tuple[Verdict, ...] = ()
    outcome: Outcome | None = None
    why_unknown: str = ""

    @property
    def is_red(self) -> bool:
        return bool(self.runs) and all(each in RED for each in self.runs)

    @property
    def is_flaky(self) -> bool:
        return Verdict.PASS in self.runs and not RED.isdisjoint(self.runs)

    @property
    def ran(self) -> bool:
        return bool(self.runs)


@dataclass(frozen=True, kw_only=True)
class CellCause:
    """Why a cell is red: a signature, or the gist of an unexplained failure. The title decides equality."""

    title: str
    signature: Signature | None = field(default=None, compare=False)


@dataclass(frozen=True, kw_only=True)
class CellChange:
    """One cell on both sides. A side without the cell is None.

    ``cause`` is that of the new side, or of the base side if only that is red. ``suspects`` are the packages that moved
    and that the failure involves, the likeliest first.
    """

    kind: ChangeKind
    case: str
    base_set: str
    new_set: str
    base: SideResult | None
    new: SideResult | None
    reason: str = ""
    cause: CellCause | None = None
    base_cause: CellCause | None = None
    suspects: tuple[str, ...] = ()
    proof: str = ""  # how the suspects are known, if not by the failure alone
    warnings: tuple[NumberWarning, ...] = ()
    moved_checks: tuple[NumberWarning, ...] = ()  # within their tolerance, if the comparison looks for them
    quarantine: str = ""  # the reason of the entry that covers the cell

    @property
    def is_alarm(self) -> bool:
        return self.kind is ChangeKind.REGRESSED and not self.quarantine

    @property
    def is_green(self) -> bool:
        """Whether every run on the new side is green."""
        return self.new is not None and self.new.ran and not self.new.is_red and not self.new.is_flaky

    @property
    def repeats(self) -> str:
        """How often the new side ran, in words."""
        runs = self.new.runs if self.new else ()
        if len(runs) < 2:  # noqa: PLR2004 - a first run and at least one repeat
            return "not repeated"
        red = sum(each in RED for each in runs)
        return f"red in {red} of {len(runs)} runs"


@dataclass(frozen=True, kw_only=True)
class SetPair:
    """Two sets that are compared, with the packages that moved.

    ``note`` says why the moves may be incomplete; empty if both locks are known. ``api`` says what the moves change in
    the packages' API.
    """

    base: str
    new: str
    moves: tuple[MovedPackage, ...] = ()
    note: str = ""
    api: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CauseGroup:
    """Changed cells of one kind with the same cause, and the moved packages that it involves.

    ``before`` is the cause on the base side, of cells that are red for another reason now.
    """

    cause: CellCause
    before: CellCause | None
    suspects: tuple[MovedPackage, ...]
    changes: tuple[CellChange, ...]


@dataclass(frozen=True, kw_only=True)
class ResultDiff:
    """The comparison of two results. ``slowdown`` is the median ratio of cell times, new to base; 0 if unknown."""

    base: DiffSide
    new: DiffSide
    pairs: tuple[SetPair, ...]
    changes: tuple[CellChange, ...]
    slowdown: float = 0.0
    alarms: tuple[EntryAlarm, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def counts(self) -> Counter[ChangeKind]:
        return Counter(each.kind for each in self.changes)

    @cached_property
    def by_kind(self) -> Mapping[ChangeKind, tuple[CellChange, ...]]:
        return {kind: tuple(each for each in self.changes if each.kind is kind) for kind in ChangeKind}

    @cached_property
    def regressions(self) -> tuple[CellChange, ...]:
        """The regressed cells that no entry of the quarantine covers."""
        return tuple(each for each in self.changes if each.is_alarm)

    @cached_property
    def warned(self) -> tuple[CellChange, ...]:
        return tuple(each for each in self.changes if each.warnings)

    @cached_property
    def with_moved_checks(self) -> tuple[CellChange, ...]:
        return tuple(each for each in self.changes if each.moved_checks)

    @cached_property
    def unknown_verdicts(self) -> Counter[Verdict | None]:
        """The verdicts that made cells unknown; that of the new side if both sides did not run."""
        return Counter(unknown_verdict(each) for each in self.by_kind[ChangeKind.UNKNOWN])

    def groups(self, kind: ChangeKind) -> tuple[CauseGroup, ...]:
        """The cells of one kind by cause, the largest group first, unexplained causes last."""
        alike: dict[tuple[CellCause, CellCause | None], list[CellChange]] = {}
        for each in self.by_kind[kind]:
            if each.cause is not None:
                before = each.base_cause if kind is ChangeKind.OTHER_REASON else None
                alike.setdefault((each.cause, before), []).append(each)
        found = [
            CauseGroup(
                cause=cause,
                before=before,
                suspects=tuple(dict.fromkeys(move for each in changes for move in self.suspected(each))),
                changes=tuple(changes),
            )
            for (cause, before), changes in alike.items()
        ]
        return tuple(sorted(found, key=lambda each: (each.cause.signature is None, -len(each.changes))))

    def suspected(self, change: CellChange) -> tuple[MovedPackage, ...]:
        moves = {
            each.name: each
            for pair in self.pairs
            if (pair.base, pair.new) == (change.base_set, change.new_set)
            for each in pair.moves
        }
        return tuple(moves[name] for name in change.suspects if name in moves)


def unknown_verdict(change: CellChange) -> Verdict | None:
    """The verdict of the side that did not run; of the new side if neither did."""
    for side in (change.new, change.base):
        if side is not None and not side.ran:
            return side.verdict
    return None
