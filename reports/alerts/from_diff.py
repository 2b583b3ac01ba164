"""Turns the comparison of two results into the alerts of a night.

There is one alert for each cause and phase that changed, and one for each entry of the quarantine that is no longer
needed. All cells that were green are listed as well, so that ``ftmatrix notify`` can close issues of earlier nights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matrix.keys import CellKey
from reports.alerts.alert import Alert, AlertKind, normal_gist, shortened
from reports.alerts.document import AlertDocument, AlertRecord, CellsRow
from reports.answers.diagnosis.diagnose import UNEXPLAINED
from reports.answers.diff.changes import ChangeKind
from reports.answers.diff.compare import OTHER_HARDWARE
from reports.answers.diff.quarantine_entry import AlarmKind, QuarantineKind
from reports.results.wording import first_line, gist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import date

    from matrix.versions.moved_packages import MovedPackage
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.diff.changes import CellChange, ResultDiff, SideResult
    from reports.answers.diff.quarantine_entry import EntryAlarm

    RedNights = Mapping[tuple[str, str, str, str], date]

KINDS: Final = {
    ChangeKind.REGRESSED: AlertKind.REGRESSION,
    ChangeKind.OTHER_REASON: AlertKind.OTHER_REASON,
    ChangeKind.FIXED: AlertKind.FIXED,
}
NO_SUSPECT: Final = "The failure names no moved package; all moved packages of the stack are listed."
TITLE_LIMIT: Final = 120
NO_MESSAGE: Final = "red without a message"  # an alert without a gist would have no identity


def alert_document(diff: ResultDiff, *, today: date, red_nights: RedNights | None = None) -> AlertDocument:
    """Return the alerts of a comparison, and its green cells.

    Args:
        diff: the night, compared with the baseline. Its quarantined cells raise no alert; its alarms about entries of
            the quarantine do.
        today: the night of a comparison whose new side has no outcome.
        red_nights: the first night of each red cell in the history, by set, case, cause and gist.
    """
    night = night_of(diff, today)
    alerts = (*alerts_of_cells(diff, night, red_nights or {}), *alerts_of_entries(diff, night))
    return AlertDocument(
        night=night,
        alerts=tuple(map(AlertRecord.of, alerts)),
        green=tuple(rows(diff, lambda each: each.is_green and each.reason != OTHER_HARDWARE)),
        red=tuple(rows(diff, lambda each: each.new is not None and each.new.ran and not each.is_green)),
    )


def night_of(diff: ResultDiff, today: date) -> date:
    """Return the day on which the new side began, or ``today`` if it has no outcome."""
    days = (each.new.outcome.started.date() for each in diff.changes if each.new and each.new.outcome)
    return min(days, default=today)


def rows(diff: ResultDiff, is_listed: Callable[[CellChange], bool]) -> Iterator[CellsRow]:
    """Yield the cells of the new side that a list has, by set.

    A cell that ran on other hardware than before is not green: there it may never have been red.
    """
    cases: dict[str, list[str]] = {}
    for each in diff.changes:
        if is_listed(each):
            cases.setdefault(each.new_set, []).append(each.case)
    yield from (CellsRow(device=diff.new.device, set=key, cases=tuple(names)) for key, names in cases.items())


def alerts_of_cells(diff: ResultDiff, night: date, red_nights: RedNights) -> Iterator[Alert]:
    """Yield an alert for the cells of each kind, cause and phase; explained causes and large groups first."""
    expired = {cell: alarm for alarm in diff.alarms if alarm.kind is AlarmKind.EXPIRED for cell in alarm.cells}
    groups: dict[tuple[AlertKind, str, str], list[CellChange]] = {}
    for each in diff.changes:
        kind = AlertKind.EXPIRED if cell_of(each) in expired else KINDS.get(each.kind)
        if kind is not None and not each.quarantine:
            groups.setdefault((kind, cause_of(each), failed_phase(each)), []).append(each)
    first_nights = nights_by_cause(red_nights)
    order = [*AlertKind]

    def rank(item: tuple[tuple[AlertKind, str, str], list[CellChange]]) -> tuple[int, bool, int]:
        (kind, _, _), changes = item
        return order.index(kind), signature_of(changes[0]) is None, -len(changes)

    for (kind, cause, phase), changes in sorted(groups.items(), key=rank):
        signature, message = signature_of(changes[0]), gist_of(changes)
        moves = tuple(dict.fromkeys(move for each in changes for move in diff.suspected(each)))
        known = (first_nights.get((red_cell(each), cause), night) for each in changes)
        entries = dict.fromkeys(expired[cell_of(each)] for each in changes if cell_of(each) in expired)
        yield Alert(
            kind=kind,
            device=diff.new.device,
            title=shortened(first_line(signature.cause if signature else message), TITLE_LIMIT),
            cause=signature.cause if signature else message,
            cause_id=signature.id if signature else "",
            gist=message,
            phase=phase,
            moved=moves or stack_moves(diff, changes),
            cells=tuple(map(cell_of, changes)),
            first_seen=min(night, *known),
            body=body(diff, changes, is_suspected=bool(moves), notes=tuple(map(str, entries))),
        )


def alerts_of_entries(diff: ResultDiff, night: date) -> Iterator[Alert]:
    """Yield an alert for each entry of the quarantine that is no longer needed: its cells are green or stable."""
    for each in diff.alarms:
        cells = each.green if each.kind is AlarmKind.EXPIRED else each.cells
        if each.kind is AlarmKind.GONE or (cells and not (each.kind is AlarmKind.EXPIRED and each.cells)):
            yield Alert(
                kind=entry_kind(each),
                device=diff.new.device,
                title=shortened(entry_title(each), TITLE_LIMIT),
                cause=each.entry.reason,
                cause_id=f"quarantine of {each.entry.case} on {each.entry.sets} as {each.entry.kind}",
                cells=cells,
                first_seen=night,
                body=f"{str(each)[:1].upper()}{str(each)[1:]}.",
            )


def entry_kind(alarm: EntryAlarm) -> AlertKind:
    if alarm.kind is AlarmKind.GONE:
        return AlertKind.GONE
    return AlertKind.KNOWN_GREEN if alarm.entry.kind is QuarantineKind.RED else AlertKind.STABLE


def entry_title(alarm: EntryAlarm) -> str:
    states = {
        AlarmKind.GREEN: "Green",
        AlarmKind.STABLE: "Stable",
        AlarmKind.EXPIRED: "Expired, and green",
        AlarmKind.GONE: "Not run any more",
    }
    return f"{states[alarm.kind]}, but in the quarantine: {alarm.entry.words}"


def nights_by_cause(red_nights: RedNights) -> dict[tuple[CellKey, str], date]:
    """Return the first night of each cell and cause; an unexplained cause is identified by its normal gist."""
    found: dict[tuple[CellKey, str], date] = {}
    for (key, case, cause, reason), night in red_nights.items():
        place = CellKey(key, case), normal_gist(reason) if cause == UNEXPLAINED else cause
        found[place] = min(night, found.get(place, night))
    return found


def cell_of(change: CellChange) -> CellKey:
    return CellKey(change.new_set, change.case)


def red_cell(change: CellChange) -> CellKey:
    """Return the cell that is red: that of the base side if the cell became green."""
    return CellKey(change.base_set, change.case) if change.kind is ChangeKind.FIXED else cell_of(change)


def signature_of(change: CellChange) -> Signature | None:
    return change.cause.signature if change.cause else None


def cause_of(change: CellChange) -> str:
    """Identify a cause as the fingerprint of an alert does: by its signature, or by the normal gist of the failure."""
    signature = signature_of(change)
    return signature.id if signature else normal_gist(gist_of([change]))


def red_side(change: CellChange) -> SideResult | None:
    """Return the side that is red: the new one, or the base of a cell that became green."""
    return change.base if change.kind is ChangeKind.FIXED else change.new


def failed_phase(change: CellChange) -> str:
    side = red_side(change)
    phase = side.outcome.phase if side and side.outcome else None
    return phase.value if phase else ""


def gist_of(changes: Sequence[CellChange]) -> str:
    sides = map(red_side, changes)
    return next((gist(side.outcome) for side in sides if side and side.outcome), "") or NO_MESSAGE


def stack_moves(diff: ResultDiff, changes: Iterable[CellChange]) -> tuple[MovedPackage, ...]:
    """Return the packages of the stack that moved between the sets of some cells."""
    pairs = {(each.base_set, each.new_set) for each in changes}
    moves = (move for pair in diff.pairs if (pair.base, pair.new) in pairs for move in pair.moves if move.is_of_stack)
    return tuple(dict.fromkeys(moves))


def body(diff: ResultDiff, changes: Sequence[CellChange], *, is_suspected: bool, notes: Sequence[str] = ()) -> str:
    """Return the Markdown of an alert: the evidence of each cell, and the command that reproduces the first."""
    first = changes[0]
    side = red_side(first)
    lines = [f"{diff.base.name} against {diff.new.name}, on {diff.new.hardware}.", *notes]
    lines += dict.fromkeys(each.proof for each in changes if each.proof)
    if not is_suspected:
        lines.append(NO_SUSPECT)
    if first.kind is not ChangeKind.FIXED:
        lines.append(f"`{first.case}`: {evidence(first)}")
    if first.kind is ChangeKind.OTHER_REASON and first.base_cause is not None:
        lines.append(f"Red before for another reason: {first.base_cause.title}")
    if side and side.outcome:
        lines.append(f"```text\n{side.outcome.reason.strip()}\n```")
    folder = diff.base if first.kind is ChangeKind.FIXED else diff.new
    where = f" --results {folder.name}" if "/" in folder.name else ""
    return "\n\n".join([*lines, f"Reproduce: `ftmatrix repro {red_cell(first)} --issue{where}`"])


def evidence(change: CellChange) -> str:
    sides = (change.base, change.new)
    before, after = (side.verdict.value if side and side.verdict is not None else "-" for side in sides)
    return f"{before}, then {after}; {change.repeats}"
