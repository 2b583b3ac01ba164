"""Draws the matrix on a terminal, readable at 80 columns and without colour."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.keys import CellKey
from reports.render.text.devices_text import summary as differences
from reports.results.verdict_style import LOOKS, look
from reports.results.wording import device, machine, plain, rates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType

    from matrix.run.outcome import RunRecord, SetRecord
    from reports.answers.overview import Overview
    from reports.results.grid import CaseFailure, Grid

GAP: Final = 2
LEAST_NAME: Final = 30
VERDICTS: Final = (*LOOKS, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A version set with its column title: the key, or a number if the keys are too wide."""

    key: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The width of the case names, and the columns of each block of the table."""

    name: int
    blocks: tuple[tuple[Column, ...], ...]
    numbered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalReport:
    """A run as a rich renderable: ``console.print(TerminalReport(...))``."""

    record: RunRecord
    grid: Grid
    known: Overview

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        shape = layout(self.grid.sets, self.grid.cases, options.max_width)
        yield Text(f"{device(self.record)}, {plain(machine(self.record))}", style="bold")
        if shape.numbered:
            yield from numbers(self.grid.sets)
        for block in shape.blocks:
            yield Text()
            yield table(self.grid, block, shape.name)
        yield Text()
        yield legend(self.grid)
        yield summary(self.grid)
        yield from blocked(self.grid)
        yield from red(self.known)
        yield from flaky(self.grid)
        yield from compared(self.known)


def layout(sets: Sequence[SetRecord], cases: Sequence[str], width: int) -> Layout:
    """Fit the table to a width: keys as titles, else numbers, else numbers in several blocks."""
    longest = max((len(case) for case in cases), default=0) + GAP
    titled = [Column(key=column.key, title=plain(column.key)) for column in sets]
    if longest + sum(len(column.title) + GAP for column in titled) <= width:
        return Layout(name=longest, blocks=(tuple(titled),), numbered=False)
    numbered = [Column(key=column.key, title=f"{n:>2}") for n, column in enumerate(sets, 1)]
    each = 2 + GAP - 1
    name = min(longest, max(LEAST_NAME, width - each * len(numbered)))
    per_block = max(1, (width - name) // each)
    starts = range(0, len(numbered), per_block)
    return Layout(name=name, blocks=tuple(tuple(numbered[at : at + per_block]) for at in starts), numbered=True)


def numbers(sets: Sequence[SetRecord]) -> Iterator[Text]:
    for number, column in enumerate(sets, 1):
        pins = "  ".join(f"{name} {version}" for name, version in column.pins.items())
        line = Text(f"{number:>2}  {plain(column.key)}", no_wrap=True, overflow="ellipsis")
        yield line.append(f"  {plain(pins)}", style="dim")


def table(grid: Grid, columns: Sequence[Column], name: int) -> Table:
    shape = Table(box=None, padding=(0, 0, 0, 0), pad_edge=False, show_edge=False)
    shape.add_column("case", width=name, overflow="fold")
    for column in columns:
        shape.add_column(Text(column.title), justify="right", width=len(column.title) + 1, no_wrap=True)
    for group in grid.groups:
        shape.add_row(Text(plain(group.name), style="bold underline"))
        for case in group.cases:
            shape.add_row(
                Text(wrapped(plain(case), name)),
                *(
                    sign(grid.verdict(case, column.key)) if grid.belongs(case, column.key) else Text()
                    for column in columns
                ),
            )
    return shape


def wrapped(case: str, width: int) -> str:
    """Wrap a long name, after a hyphen if possible."""
    return "\n".join(textwrap.wrap(case, width - 1, initial_indent=" ", subsequent_indent="   "))


def sign(verdict: Verdict | None) -> Text:
    shape = look(verdict)
    return Text(shape.sign, style=shape.style)


def legend(grid: Grid) -> Text:
    """Return the signs and meanings of the verdicts that occur."""
    counts = grid.counts()
    parts = [
        Text.assemble(sign(verdict), f" {look(verdict).word}: {look(verdict).meaning}")
        for verdict in VERDICTS
        if counts[verdict]
    ]
    return Text("\n").join(parts)


def summary(grid: Grid) -> Text:
    """Return the count of every verdict, also if it is 0: unknown, skipped and lost cells must never hide."""
    counts = grid.counts()
    parts = [
        Text(f"{counts[verdict]} {look(verdict).word}", style=look(verdict).style if counts[verdict] else "dim")
        for verdict in VERDICTS
    ]
    return Text(f"{counted(counts.total(), 'cell')}: ", style="bold").append_text(
        Text(", ", style="not bold").join(parts)
    )


def blocked(grid: Grid) -> Iterator[Text]:
    for key, why in grid.blocked.items():
        yield Text.assemble((plain(key), "bold"), " is ", (look(Verdict.BLOCKED).word, "yellow"), f": {plain(why)}")


def red(known: Overview) -> Iterator[Text]:
    """Yield the red cells by cause."""
    if known.causes:
        yield Text()
        yield Text(f"{counted(known.red, 'red cell')}, {known.unexplained} unexplained", style="bold")
    for cause in known.causes:
        yield Text()
        yield Text(f"{plain(cause.title)} ({len(cause.cells)})", style="bold underline")
        if cause.signature is not None:
            yield Text(f"{cause.signature.cause} ({cause.signature.kind.words})")
        for finding in known.findings(cause):
            yield from failure_lines(finding, known)


def flaky(grid: Grid) -> Iterator[Text]:
    if grid.flaky:
        yield Text()
        yield Text("Flaky cells", style="bold")
    for (case, key), verdicts in grid.flaky.items():
        yield Text.assemble((str(CellKey(key, case)), "bold"), f"  {rates(verdicts)}")


def compared(known: Overview) -> Iterator[Text]:
    """Yield the comparison with the other kind of device in one line; other reports list the differences."""
    if known.devices.pairs:
        yield Text()
        yield Text.assemble(("CPU and GPU: ", "bold"), differences(known.devices))


def failure_lines(finding: CaseFailure, known: Overview) -> Iterator[Text]:
    """Yield the key of the cell, the other sets with the same failure, the headline, and the fix."""
    first, *others = finding.sets
    shape = look(finding.verdict)
    phase = f"  {finding.phase.value}" if finding.phase else ""
    yield Text.assemble(
        (str(CellKey(first, finding.case)), "bold"), "  ", (f"{shape.sign} {shape.word}", shape.style), phase
    )
    if others:
        yield Text(f"  also on {', '.join(others)}")
    yield Text(f"  {finding.headline}", style="dim")
    if finding.location:
        yield Text(f"  {finding.location}")
    for fix in known.ways(finding):
        on = f" on {', '.join(fix.sets)}" if fix.sets != finding.sets else ""
        yield Text(f"  fix{on}: {fix.remedy.words}")
