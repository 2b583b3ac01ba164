"""Bisects what a night found: one cell for each cause, from the base set to the candidate that is closest to it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from cases.space.verdict import Verdict
from matrix.bisect import request as bisection
from matrix.bisect.ends import MINUTES
from matrix.bisect.request import BisectRequest
from matrix.errors import UserError
from matrix.keys import CellKey, SetKey
from matrix.run import request as run_request
from reports.alerts.alert import AlertKind
from reports.alerts.document import MovedRow
from reports.alerts.from_diff import NO_SUSPECT
from reports.commands.runs import bisect_report
from reports.render.text import bisect_text
from reports.results.loading import load
from reports.results.location_words import location_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matrix.bisect.answer import BisectAnswer
    from matrix.nightly.slices import Clock
    from matrix.run.outcome import Outcome
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
        durations_s: how long each bisection of this call took.
    """

    request: RunRequest
    directory: Path
    base: str
    moved: Mapping[str, int]
    clock: Clock
    pre: bool
    say: Callable[[str], None]
    durations_s: list[float] = field(default_factory=list)

    def explained(self, document: AlertDocument) -> AlertDocument:
        """Return the alerts with the culprits of each regression, as far as the time allows.

        A silent fault turns many checks red, and each combination of checks is an alert of its own. Those that begin at
        the same module, on a set on which one package moved, are one.
        """
        kept: list[AlertRecord] = []
        begun: dict[tuple[str, str], int] = {}  # the place of an alert by set and first module off
        for record in document.alerts:
            cells = [CellKey(each.set, each.case) for each in record.cells if each.set in self.moved]
            if record.kind is not AlertKind.REGRESSION or not cells:
                kept.append(record)  # a change of --with is its own culprit
                continue
            cell = self.closest(cells)
            first_off = "" if record.cause_id or self.is_over else self.first_off(cell)
            start = cell.set, first_off
            if start in begun:
                kept[begun[start]] = joined(kept[begun[start]], record)
                continue
            if first_off and self.moved[cell.set] == 1:
                begun[start] = len(kept)
            kept.append(self.with_culprits(with_words(record, first_off), cell, first_off))
        return document.model_copy(update={"alerts": tuple(kept)})

    @property
    def is_over(self) -> bool:
        """Return whether too little time is left to run a cell once more or to bisect it."""
        return self.clock.left() < SHORTEST_S

    @property
    def is_too_late(self) -> bool:
        """Return whether too little time is left for a bisection, by what the others took."""
        return self.clock.left() < max([SHORTEST_S, *self.durations_s])

    def with_culprits(self, record: AlertRecord, cell: CellKey, first_off: str) -> AlertRecord:
        if self.is_too_late:
            return with_words(record, f"Not bisected, as the time of the night was over: `{self.command(cell)}`.")
        self.say(f"Bisecting {cell}")
        began = time.monotonic()
        try:
            directory, answer = bisection.run(
                self.wish(cell, record), cause=bisect_report.cause, api=bisect_report.api_changes, say=self.say
            )
        except UserError as error:
            return with_words(record, f"The bisection of `{cell.case}` ended without an answer: {error}.")
        finally:
            self.durations_s.append(time.monotonic() - began)
        self.say(bisect_report.write(directory, answer))
        return with_answer(record, answer, directory, first_off)

    def first_off(self, cell: CellKey) -> str:
        """Run a wrong cell once more to find the first module that is off; return that in words, if there is one."""
        outcome = self.outcome(cell)
        if outcome is None or outcome.verdict is not Verdict.WRONG:
            return ""
        sets = {each.key: each for each in self.request.known}
        wish = replace(self.request, out=self.directory, resume=True, locate="wrong")
        work = [(sets[cell.set], [self.request.suite.cases[cell.case]])]
        run_request.run(wish, work=work, say=self.say)
        outcome = self.outcome(cell)
        if outcome is None or outcome.location is None or not outcome.location.beginnings:
            return ""
        words = location_words(outcome.location)
        return f"{words[:1].upper()}{words[1:]}."

    def outcome(self, cell: CellKey) -> Outcome | None:
        return load(self.directory).matrix.lookup(cell.case, cell.set)

    def closest(self, cells: Sequence[CellKey]) -> CellKey:
        """The cell on the set with the fewest moved packages; of several, the one with the shortest name."""
        return min(cells, key=lambda each: (self.moved[each.set], len(SetKey.parse(each.set).extras), len(each.case)))

    def wish(self, cell: CellKey, record: AlertRecord) -> BisectRequest:
        directory = self.directory / FOLDER / record.alert.fingerprint
        return BisectRequest(
            run_request=replace(self.request, out=directory),
            cell=str(cell),
            good=self.base,
            pre=self.pre,
            minutes=min(MINUTES, self.clock.left() / 60.0),
        )

    def command(self, cell: CellKey) -> str:
        return f"ftmatrix bisect {cell} --good {self.base} --versions {self.request.versions}"


def with_words(record: AlertRecord, words: str) -> AlertRecord:
    if not words:
        return record
    return record.model_copy(update={"body": f"{record.body}\n\n{words}" if record.body else words})


def with_answer(record: AlertRecord, answer: BisectAnswer, directory: Path, first_off: str) -> AlertRecord:
    """Return an alert that names the culprits instead of all packages that moved, with the bug report's place."""
    found = with_words(named(record, answer, first_off), bisect_text.markdown_section(answer).strip())
    report = directory / bisect_report.ISSUE
    return with_words(found, f"Bug report: `{report}`") if report.exists() else found


def joined(one: AlertRecord, other: AlertRecord) -> AlertRecord:
    """Return one alert for the cells of both, which begin to deviate at the same place."""
    cells = tuple(dict.fromkeys((*one.cells, *other.cells)))
    words = f"Also shown by {counted(len(other.cells), 'cell')} with: {other.gist}"
    earliest = min(one.first_seen, other.first_seen)
    return with_words(one, words).model_copy(update={"cells": cells, "first_seen": earliest})


def culprit_words(answer: BisectAnswer) -> str:
    return " with ".join(f"{each.package} {each.first_bad or 'removed'}" for each in answer.culprits)


def named(record: AlertRecord, answer: BisectAnswer, first_off: str) -> AlertRecord:
    """Return an alert with the culprits in its title; that of a silent failure says where it begins."""
    moved = tuple(MovedRow(name=each.package, old=each.last_good, new=each.first_bad) for each in answer.culprits)
    what = f"silently wrong, {first_off[:1].lower()}{first_off[1:-1]}" if first_off else record.title
    body = record.body.replace(f"{NO_SUSPECT}\n\n", "")
    return record.model_copy(update={"moved": moved, "body": body, "title": f"{culprit_words(answer)}: {what}"})
