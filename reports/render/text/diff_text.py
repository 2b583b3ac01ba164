"""Draws the comparison of two results on a terminal. Its words also serve the other formats."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.keys import CellKey
from reports.answers.diff.changes import ChangeKind
from reports.answers.diff.compare import BOTH
from reports.results.verdict_style import look
from reports.results.wording import device_words, headline, plain, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

    from matrix.versions.moved_packages import MovedPackage
    from reports.answers.diff.changes import CauseGroup, CellChange, ResultDiff, SetPair, SideResult

MOST_MOVES: Final = 8  # packages outside the stack that a line names
MOST_CASES: Final = 3  # cases that a line names
MOST_ROWS: Final = 5  # rows of a cause
REASON: Final = 110
# The kinds that are listed by cause, in order.
BY_CAUSE: Final = (
    ChangeKind.REGRESSED,
    ChangeKind.FLAKY,
    ChangeKind.OTHER_REASON,
    ChangeKind.FIXED,
    ChangeKind.SAME_REASON,
)
STYLES: Final = {
    ChangeKind.REGRESSED: "bold red",
    ChangeKind.FLAKY: "bold yellow",
    ChangeKind.OTHER_REASON: "magenta",
    ChangeKind.FIXED: "bold green",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalDiff:
    """A comparison as a rich renderable. ``every`` lists what is shortened otherwise."""

    diff: ResultDiff
    every: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        diff = self.diff
        yield Text(title(diff), style="bold")
        for pair in diff.pairs:
            yield from (Text(line) for line in pair_lines(pair, every=self.every, several=len(diff.pairs) > 1))
        for kind in BY_CAUSE:
            yield from self.by_cause(kind)
        yield from self.one_sided()
        yield from self.warnings()
        yield from self.moved_checks()
        yield from self.unknown()
        yield Text()
        for line in (*diff.alarms, *diff.notes):
            yield Text(plain(str(line)), style="bold yellow")
        yield Text(summary(diff), style="bold")

    def by_cause(self, kind: ChangeKind) -> Iterator[RenderableType]:
        groups = self.diff.groups(kind)
        if not groups:
            return
        yield Text()
        yield Text(heading(kind, self.diff.counts[kind]), style=f"{STYLES.get(kind, 'bold')} underline")
        short = kind is ChangeKind.SAME_REASON and not self.every
        for group in groups:
            yield from (Text(line) for line in cause_lines(group, kind, self.diff))
            if short:
                yield Text(f"    {few_cases(group.changes)}", style="dim")
                continue
            rows = group.changes if self.every else group.changes[:MOST_ROWS]
            yield table(rows)
            if len(rows) < len(group.changes):
                yield Text(f"    and {len(group.changes) - len(rows)} more (--all)", style="dim")

    def one_sided(self) -> Iterator[RenderableType]:
        for kind in (ChangeKind.NEW, ChangeKind.GONE):
            changes = self.diff.by_kind[kind]
            if changes:
                yield Text()
                yield Text(heading(kind, len(changes)), style="bold underline")
                for verdict, cells in by_verdict(changes).items():
                    names = cell_names(cells) if self.every else few_cases(cells)
                    yield Text.assemble(f"  {look(verdict).word} ({len(cells)})  ", (names, "dim"))

    def warnings(self) -> Iterator[RenderableType]:
        if self.diff.warned:
            yield Text()
            yield Text(f"Warnings about numbers ({len(self.diff.warned)})", style="bold yellow underline")
        for change in self.diff.warned:
            yield Text(f"  {cell(change)}")
            yield from (Text(f"    {plain(str(warning))}", style="dim") for warning in change.warnings)

    def moved_checks(self) -> Iterator[RenderableType]:
        moved = self.diff.with_moved_checks
        if moved:
            yield Text()
            yield Text(moved_heading(self.diff), style="bold underline")
        for change in moved if self.every else moved[:MOST_ROWS]:
            yield Text(f"  {cell(change)}")
            yield from (Text(f"    {plain(str(each))}", style="dim") for each in change.moved_checks)
        if not self.every and len(moved) > MOST_ROWS:
            yield Text(f"  and {len(moved) - MOST_ROWS} more (--all)", style="dim")

    def unknown(self) -> Iterator[RenderableType]:
        changes = self.diff.by_kind[ChangeKind.UNKNOWN]
        if not changes:
            return
        yield Text()
        yield Text(heading(ChangeKind.UNKNOWN, len(changes)), style="bold underline")
        for reason, cells in by_reason(changes).items():
            names = cell_names(cells) if self.every else few_cases(cells)
            yield Text(f"  {trimmed(plain(reason), REASON)} ({len(cells)})")
            yield Text(f"    {names}", style="dim")


def title(diff: ResultDiff) -> str:
    hardware = diff.new.hardware
    if diff.base.hardware != diff.new.hardware:
        hardware = f"{diff.base.hardware} compared with {diff.new.hardware}"
    return plain(f"{diff.base.name} -> {diff.new.name} on {device_words(diff.new.device)}, {hardware}")


def pair_lines(pair: SetPair, *, every: bool, several: bool) -> Iterator[str]:
    """Yield the packages that moved between two sets: the six of the stack, then the others."""
    start = f"{pair.new}: " if several else ""
    if not pair.base or not pair.new:
        yield plain(f"{pair.base or pair.new}: only on the {'base' if pair.base else 'new'} side")
        return
    stack = [each for each in pair.moves if each.is_of_stack]
    others = [each for each in pair.moves if not each.is_of_stack]
    yield plain(f"{start}moved: {listed(stack)}" if stack else f"{start}none of the six packages moved")
    yield from (plain(f"  {each}") for each in pair.api)
    if others:
        shown = others if every else others[:MOST_MOVES]
        more = f", and {len(others) - len(shown)} more (--all)" if len(shown) < len(others) else ""
        yield plain(f"  and {counted(len(others), 'other package')}: {listed(shown)}{more}")
    if pair.note:
        yield plain(f"  {pair.note}")


def listed(moves: Sequence[MovedPackage]) -> str:
    return ", ".join(map(str, moves))


def heading(kind: ChangeKind, count: int) -> str:
    return f"{kind[0].upper()}{kind[1:]} ({count})"


def moved_heading(diff: ResultDiff) -> str:
    return f"Green, but checks moved within their tolerance ({len(diff.with_moved_checks)})"


def cause_lines(group: CauseGroup, kind: ChangeKind, diff: ResultDiff) -> Iterator[str]:
    """Yield the cause of some cells and the packages that it involves."""
    yield plain(f"  {trimmed(group.cause.title)} ({len(group.changes)})")
    if group.cause.signature is not None:
        yield plain(f"    {group.cause.signature.cause} ({group.cause.signature.kind.words})")
    if group.before is not None:
        yield plain(f"    before: {trimmed(group.before.title)}")
    if group.suspects and kind is not ChangeKind.SAME_REASON:
        yield plain(f"    moved and involved: {listed(group.suspects)}")
        yield from dict.fromkeys(plain(f"    {each.proof}") for each in group.changes if each.proof)
    elif any(pair.moves for pair in diff.pairs) and kind is not ChangeKind.SAME_REASON:
        yield "    neither a traceback nor a known cause names a package; any that moved may be the reason"


def table(changes: Sequence[CellChange]) -> Table:
    shape = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    shape.add_column(width=2)
    shape.add_column(overflow="fold", ratio=3)
    shape.add_column(no_wrap=True)
    shape.add_column(overflow="fold", ratio=2)
    for change in changes:
        shape.add_row("", plain(cell(change)), verdicts(change), Text(plain(remark(change)), style="dim"))
    return shape


def cell(change: CellChange) -> str:
    return str(CellKey(change.base_set if change.kind is ChangeKind.GONE else change.new_set, change.case))


def verdicts(change: CellChange) -> Text:
    """Return the signs of both sides: ``✓ → ✗``."""
    return Text(" → ").join(sign(side) for side in (change.base, change.new))


def sign(side: SideResult | None) -> Text:
    if side is None:
        return Text(" ")
    shape = look(side.verdict)
    return Text(f"{shape.sign} {shape.word}", style=shape.style)


def remark(change: CellChange) -> str:
    """Return the repeats of a red or flaky cell, the entry of the quarantine, and the headline."""
    parts = []
    if change.kind is ChangeKind.FLAKY:
        parts += [f"{name} {rate(side)}" for name, side in (("base", change.base), ("new", change.new)) if side]
    elif change.kind is ChangeKind.REGRESSED:
        parts.append(change.repeats)
    if change.quarantine:
        parts.append(f"quarantined: {change.quarantine}")
    if said := said_by(change):
        parts.append(said)
    return "; ".join(parts)


def rate(side: SideResult) -> str:
    counts = Counter(side.runs)
    return ", ".join(f"{look(each).word} {count} of {len(side.runs)}" for each, count in counts.items())


def said_by(change: CellChange) -> str:
    """Return the headline of the red side; of a fixed cell, that of the base side."""
    side = change.base if change.kind is ChangeKind.FIXED else change.new
    if side is None or side.outcome is None or side.outcome.verdict is Verdict.PASS:
        return ""
    return headline(side.outcome, REASON)


def by_verdict(changes: Sequence[CellChange]) -> dict[Verdict | None, list[CellChange]]:
    found: dict[Verdict | None, list[CellChange]] = {}
    for each in changes:
        side = each.new or each.base
        found.setdefault(side.verdict if side else None, []).append(each)
    return found


def by_reason(changes: Sequence[CellChange]) -> dict[str, list[CellChange]]:
    """Return unknown cells by reason; those that did not run on one side only come first."""
    found: dict[str, list[CellChange]] = {}
    for each in sorted(changes, key=lambda each: (BOTH in each.reason, "; on the base" in each.reason)):
        found.setdefault(each.reason, []).append(each)
    return found


def few_cases(changes: Sequence[CellChange]) -> str:
    names = [cell(each) for each in changes[:MOST_CASES]]
    return plain(", ".join(names) + (f", and {len(changes) - MOST_CASES} more" if len(changes) > MOST_CASES else ""))


def cell_names(changes: Sequence[CellChange]) -> str:
    return plain(", ".join(map(cell, changes)))


def summary(diff: ResultDiff) -> str:
    """Return the counts of all classes, also those that are 0: unknown, skipped and lost cells must never hide."""
    kinds = ", ".join(f"{diff.counts[kind]} {kind}" for kind in ChangeKind)
    why = diff.unknown_verdicts
    unknown = ", ".join(
        f"{why[each]} {'not run' if each is None else look(each).word}"
        for each in (Verdict.SKIP, Verdict.LOST, Verdict.BLOCKED, None)
    )
    quarantined = diff.counts[ChangeKind.REGRESSED] - len(diff.regressions)
    parts = [f"{counted(len(diff.changes), 'cell')}: {kinds}.", f"Of the unknown: {unknown}."]
    if quarantined:
        parts.append(f"{quarantined} of the regressed are quarantined.")
    if diff.warned:
        parts.append(f"{counted(len(diff.warned), 'warning')} about numbers.")
    if diff.slowdown:
        parts.append(f"The median cell took {diff.slowdown:.2f} times as long.")
    return " ".join(parts)


def accepted_lines(diff: ResultDiff) -> Iterator[str]:
    """Yield the cells that become red or green if the new side is accepted as the baseline."""
    if diff.base.hardware != diff.new.hardware:
        yield plain(f"other hardware: {diff.base.hardware} -> {diff.new.hardware}")
    for kind, word in ((ChangeKind.REGRESSED, "red"), (ChangeKind.FIXED, "green"), (ChangeKind.FLAKY, "flaky")):
        for group in diff.groups(kind):
            for each in group.changes:
                yield plain(f"becomes {word}: {cell(each)}: {group.cause.title}")
    yield plain(summary(diff))
