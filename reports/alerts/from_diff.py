"""Turns the comparison of two results into the alerts of a night: one for each cause and phase that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matrix.keys import CellKey
from reports.alerts.alert import Alert, AlertKind, MovedPackage, shortened
from reports.alerts.document import AlertDocument, AlertRecord
from reports.answers.diff.changes import ChangeKind
from reports.results.wording import first_line, gist

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from reports.answers.diff.changes import CauseGroup, CellChange, ResultDiff, SideResult
    from reports.answers.diff.packages import LockMove

KINDS: Final = {ChangeKind.REGRESSED: AlertKind.REGRESSION, ChangeKind.FIXED: AlertKind.FIXED}
TITLE_LIMIT: Final = 120


def alert_document(diff: ResultDiff, *, today: date) -> AlertDocument:
    """Return the alerts of a comparison. Quarantined cells raise none.

    Args:
        diff: the night, compared with the baseline.
        today: the night of a comparison whose new side has no outcome.
    """
    night = night_of(diff, today)
    groups = ((kind, group) for kind in KINDS for group in diff.groups(kind))
    alerts = (alert for kind, group in groups for alert in alerts_of_group(diff, kind, group, night))
    return AlertDocument(night=night, alerts=tuple(map(AlertRecord.of, alerts)))


def night_of(diff: ResultDiff, today: date) -> date:
    """Return the day on which the new side began, or ``today`` if it has no outcome."""
    days = (each.new.outcome.started.date() for each in diff.changes if each.new and each.new.outcome)
    return min(days, default=today)


def alerts_of_group(diff: ResultDiff, kind: ChangeKind, group: CauseGroup, night: date) -> Iterator[Alert]:
    by_phase: dict[str, list[CellChange]] = {}
    for each in group.changes:
        if not each.quarantine:
            by_phase.setdefault(failed_phase(each), []).append(each)
    signature = group.cause.signature
    for phase, changes in by_phase.items():
        message = gist_of(changes)
        moves = tuple(dict.fromkeys(move for each in changes for move in diff.suspected(each)))
        yield Alert(
            kind=KINDS[kind],
            device=diff.new.device,
            title=shortened(first_line(signature.cause if signature else message), TITLE_LIMIT),
            cause=signature.cause if signature else message,
            cause_id=signature.id if signature else "",
            gist=message,
            phase=phase,
            moved=tuple(map(moved, moves or stack_moves(diff, changes))),
            cells=tuple(CellKey(each.new_set, each.case) for each in changes),
            first_seen=night,
            body=body(diff, changes, is_suspected=bool(moves)),
        )


def red_side(change: CellChange) -> SideResult | None:
    """Return the side that is red: the new one, or the base of a cell that became green."""
    return change.base if change.kind is ChangeKind.FIXED else change.new


def failed_phase(change: CellChange) -> str:
    side = red_side(change)
    phase = side.outcome.phase if side and side.outcome else None
    return phase.value if phase else ""


def gist_of(changes: Sequence[CellChange]) -> str:
    sides = map(red_side, changes)
    return next((gist(side.outcome) for side in sides if side and side.outcome), "")


def moved(move: LockMove) -> MovedPackage:
    return MovedPackage(name=move.name, before=move.old, after=move.new)


def stack_moves(diff: ResultDiff, changes: Iterable[CellChange]) -> tuple[LockMove, ...]:
    """Return the packages of the stack that moved between the sets of some cells."""
    pairs = {(each.base_set, each.new_set) for each in changes}
    moves = (move for pair in diff.pairs if (pair.base, pair.new) in pairs for move in pair.moves if move.is_of_stack)
    return tuple(dict.fromkeys(moves))


def body(diff: ResultDiff, changes: Sequence[CellChange], *, is_suspected: bool) -> str:
    """Return the Markdown of an alert: the evidence of each cell, and the command that reproduces the first."""
    first = changes[0]
    side = red_side(first)
    key = CellKey(first.base_set if first.kind is ChangeKind.FIXED else first.new_set, first.case)
    lines = [f"{diff.base.name} against {diff.new.name}, on {diff.new.hardware}."]
    if not is_suspected:
        lines.append("The failure names no moved package; all moved packages of the stack are listed.")
    if first.kind is ChangeKind.REGRESSED:
        lines.append(f"`{first.case}`: {evidence(first)}")
    if side and side.outcome:
        lines.append(f"```text\n{side.outcome.reason.strip()}\n```")
    return "\n\n".join([*lines, f"Reproduce: `ftmatrix repro {key} --issue`"])


def evidence(change: CellChange) -> str:
    sides = (change.base, change.new)
    before, after = (side.verdict.value if side and side.verdict is not None else "-" for side in sides)
    return f"{before}, then {after}; {change.repeats}"
