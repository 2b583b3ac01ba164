"""Bisects what a night found: one cell for each cause, from the base set to the candidate that is closest to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from matrix.bisect import request as bisection
from matrix.bisect.request import BisectRequest
from matrix.errors import UserError
from matrix.keys import CellKey, SetKey
from reports.alerts.alert import AlertKind
from reports.alerts.document import MovedRow
from reports.commands.runs import bisect_report
from reports.render.text import bisect_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matrix.bisect.answer import BisectAnswer
    from matrix.nightly.slices import Clock
    from matrix.run.request import RunRequest
    from reports.alerts.document import AlertDocument, AlertRecord

SHORTEST_S: Final = 60.0  # a bisection does not start with less time left
FOLDER: Final = "bisect"  # in the directory of the night


@dataclass(frozen=True, kw_only=True)
class CulpritSearch:
    """Bisects the regressions of a night.

    Attributes:
        request: the options of the runs.
        directory: the directory of the night.
        base: key of the base set.
        moved: how many packages of each candidate's lock differ from the base set's.
        clock: the time budget.
        pre: try pre-releases as well.
        say: prints the progress.
    """

    request: RunRequest
    directory: Path
    base: str
    moved: Mapping[str, int]
    clock: Clock
    pre: bool
    say: Callable[[str], None]

    def explained(self, document: AlertDocument) -> AlertDocument:
        """Return the alerts with the culprits of each regression, as far as the time allows."""
        return document.model_copy(update={"alerts": tuple(map(self.with_culprits, document.alerts))})

    def with_culprits(self, record: AlertRecord) -> AlertRecord:
        cells = [CellKey(each.set, each.case) for each in record.cells if each.set in self.moved]
        if record.kind is not AlertKind.REGRESSION or not cells:
            return record  # a change of --with is its own culprit
        cell = self.closest(cells)
        if self.clock.left() < SHORTEST_S:
            return with_words(record, f"Not bisected, as the time of the night was over: `{self.command(cell)}`.")
        self.say(f"Bisecting {cell}")
        try:
            directory, answer = bisection.run(self.wish(cell, record), cause=bisect_report.cause, say=self.say)
        except UserError as error:
            return with_words(record, f"The bisection of `{cell.case}` ended without an answer: {error}.")
        self.say(bisect_report.write(directory, answer))
        return with_answer(record, answer, directory)

    def closest(self, cells: Sequence[CellKey]) -> CellKey:
        """The cell on the set with the fewest moved packages; of several, the one with the shortest name."""
        return min(cells, key=lambda each: (self.moved[each.set], len(SetKey.parse(each.set).extras), len(each.case)))

    def wish(self, cell: CellKey, record: AlertRecord) -> BisectRequest:
        directory = self.directory / FOLDER / record.alert.fingerprint
        run_request = replace(self.request, out=directory)
        return BisectRequest(run_request=run_request, cell=str(cell), good=self.base, pre=self.pre)

    def command(self, cell: CellKey) -> str:
        return f"ftmatrix bisect {cell} --good {self.base} --versions {self.request.versions}"


def with_words(record: AlertRecord, words: str) -> AlertRecord:
    return record.model_copy(update={"body": f"{record.body}\n\n{words}" if record.body else words})


def with_answer(record: AlertRecord, answer: BisectAnswer, directory: Path) -> AlertRecord:
    """Return an alert that names the culprits instead of all packages that moved, with the bug report's place."""
    moved = tuple(MovedRow(name=each.package, old=each.last_good, new=each.first_bad) for each in answer.culprits)
    names = " with ".join(f"{each.package} {each.first_bad or 'removed'}" for each in answer.culprits)
    found = with_words(record, bisect_text.markdown_section(answer).strip())
    report = directory / bisect_report.ISSUE
    if report.exists():
        found = with_words(found, f"Bug report: `{report}`")
    return found.model_copy(update={"moved": moved, "title": f"{names}: {record.title}"})
