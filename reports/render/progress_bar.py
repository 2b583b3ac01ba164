"""Shows the progress of a run: a live bar on a terminal, one plain line per event elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from cases.space.verdict import Verdict
from reports.results.verdict_style import LOOKS, look
from reports.results.wording import headline, plain, seconds_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from matrix.run.outcome import Outcome
    from matrix.run.progress import Progress

QUIET = frozenset({Verdict.PASS, Verdict.SKIP, Verdict.BLOCKED})


def choose(console: Console, *, planned: int = 0) -> Progress:
    """Return a live bar for a terminal, else plain lines. ``planned`` is the number of all cells, 0 if unknown."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, planned=planned)
    return PlainProgress(console)


def left(*, done: int, total: int, elapsed: float) -> float | None:
    """Estimate the seconds left from the cells done so far; None before the first one."""
    return elapsed / done * (total - done) if done else None


@dataclass(kw_only=True, slots=True)
class SetTally:
    """The finished cells of a version set."""

    total: int
    started: float
    counts: Counter[Verdict] = field(default_factory=Counter)

    @property
    def done(self) -> int:
        return self.counts.total()


def counts_words(counts: Counter[Verdict]) -> str:
    """Return the verdicts with their counts, ``41 pass, 3 fail``; a resumed set may have no cell left to run."""
    counted = (f"{counts[verdict]} {shape.word}" for verdict, shape in LOOKS.items() if counts[verdict])
    return ", ".join(counted) or "nothing to run"


class PlainProgress:
    """Prints a line per event, for logs and pipes."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._sets: dict[str, SetTally] = {}

    def set_started(self, key: str, total: int) -> None:
        self._sets[key] = SetTally(total=total, started=self._clock())

    def stage(self, key: str, text: str) -> None:
        self._say(f"{key} {text}")

    def cell_done(self, outcome: Outcome) -> None:
        tally = self._sets[outcome.set]
        tally.counts[outcome.verdict] += 1
        wide = len(str(tally.total))
        self._say(
            f"[{tally.done:>{wide}}/{tally.total}] {outcome.set} {outcome.case}"
            f" {look(outcome.verdict).word} {outcome.seconds:.1f}s"
        )

    def set_done(self, key: str) -> None:
        tally = self._sets[key]
        self._say(f"{key} done in {seconds_words(self._clock() - tally.started)}: {counts_words(tally.counts)}")

    def close(self) -> None:
        pass

    def _say(self, line: str) -> None:
        self._console.print(Text(plain(line)), soft_wrap=True)


class LiveProgress:
    """Shows a bar per running set and one for the whole run; red and lost cells scroll by above."""

    def __init__(self, console: Console, *, planned: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._planned = planned
        self._started = clock()
        self._counts: Counter[Verdict] = Counter()
        self._sets: dict[str, SetTally] = {}
        self._tasks: dict[str, TaskID] = {}
        self._bars = bars(console)
        self._whole = self._bars.add_task("all", total=planned or None, detail="", left="")
        self._bars.start()

    def set_started(self, key: str, total: int) -> None:
        self._sets[key] = SetTally(total=total, started=self._clock())
        self._tasks[key] = self._bars.add_task(plain(key), total=total, detail="", left="")
        announced = sum(tally.total for tally in self._sets.values())
        self._bars.update(self._whole, total=max(self._planned, announced))

    def stage(self, key: str, text: str) -> None:
        self._bars.update(self._tasks[key], detail=plain(text))

    def cell_done(self, outcome: Outcome) -> None:
        tally = self._sets[outcome.set]
        tally.counts[outcome.verdict] += 1
        self._counts[outcome.verdict] += 1
        self._bars.update(self._tasks[outcome.set], advance=1, detail=plain(outcome.case))
        self._bars.update(self._whole, advance=1, detail=counts_words(self._counts), left=self._time_left())
        if outcome.verdict not in QUIET:
            self._bars.console.print(cell_line(outcome))

    def set_done(self, key: str) -> None:
        tally = self._sets[key]
        self._bars.remove_task(self._tasks.pop(key))
        elapsed = seconds_words(self._clock() - tally.started)
        self._bars.console.print(Text(f"{plain(key)}  {counts_words(tally.counts)}  in {elapsed}"))

    def close(self) -> None:
        self._bars.stop()

    def _time_left(self) -> str:
        total = max(self._planned, sum(tally.total for tally in self._sets.values()))
        seconds = left(done=self._counts.total(), total=total, elapsed=self._clock() - self._started)
        return "" if not seconds else f"{seconds_words(seconds)} left"


def bars(console: Console) -> Bars:
    return Bars(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.fields[detail]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
        transient=True,
    )


def cell_line(outcome: Outcome) -> Text:
    shape = look(outcome.verdict)
    sign = Text(f"{shape.sign} {shape.word}", style=shape.style)
    return sign.append(f"  {plain(outcome.cell)}  {headline(outcome)}", style="default")
