"""One night: finds what is new, measures it, compares, repeats, bisects, and writes what it would tell people."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from cases.space.plural import counted
from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.keys import CellKey, EnvironmentKey
from matrix.nightly import candidate_sets
from matrix.nightly.candidates import CandidateSearch
from matrix.nightly.slices import Clock, fitting
from matrix.run import store, timings
from matrix.versions import uv
from matrix.versions.sets import PACKAGES
from reports.alerts.causes import causes
from reports.alerts.document import AlertDocument, stored
from reports.alerts.issue_text import new_body, title
from reports.answers import knowledge
from reports.answers.diff import compare, sides
from reports.commands.diff import alert_document, narrowed, quarantined
from reports.commands.nights.culprits import CulpritSearch
from reports.commands.nights.measuring import NightCells, night_request
from reports.commands.runs.diff_repeats import repeat
from reports.commands.runs.pr_comparison import compare_with_base
from reports.commands.runs.pr_request import PrRequest
from reports.render import diff_documents
from reports.render.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from cases.space.case import Case
    from matrix.nightly.candidates import CandidateSet
    from matrix.run.progress import Progress
    from matrix.run.request import RunRequest
    from matrix.versions.sets import VersionSet
    from reports.answers.diff.changes import ResultDiff
    from reports.answers.diff.quarantine import Quarantine
    from reports.commands.nights.base_set import BaseSet

ALERTS: Final = "alerts.json"
FILED: Final = "alerts.md"  # what `ftmatrix notify` would file
DIFF: Final = "diff.md"
CHANGE: Final = "change"  # directories of the runs of changes
SHORTEST_MINUTES: Final = 1.0  # for the cells of a change, whose time the releases took
REPEATS_SHARE: Final = 0.1  # of the time: cells may take 60 %, bisections what is left
REPEATS: Final = 2  # further runs of a red cell before it counts as a regression


@dataclass(frozen=True, kw_only=True)
class NightRequest:
    """The options of ``ftmatrix nightly``.

    Attributes:
        run_request: the options that it shares with a run; ``profile`` names the cases.
        base: the base set.
        folder: has a directory for each night, and the runs of base sets.
        night: the day whose releases count.
        minutes: the time budget.
        pre: packages whose pre-releases count.
        lowest: measure the lowest declared versions as well.
        changes: words of ``--with``, each laid over the base set and compared with it.
        history: the folder of the history, with which flaky cells are compared.
        nights: the nights after which a flaky cell counts as stable.
    """

    run_request: RunRequest
    base: BaseSet
    folder: Path
    night: date
    minutes: float
    pre: frozenset[str] = frozenset()
    lowest: bool = True
    changes: tuple[str, ...] = ()
    quarantine: Quarantine
    history: Path
    nights: int

    @property
    def directory(self) -> Path:
        return self.folder / f"{self.night}-{self.run_request.resolved_device}"

    @property
    def base_run(self) -> Path:
        key = EnvironmentKey(self.base.lock.digest, self.run_request.resolved_device)
        return self.folder / "base" / f"{self.base.lock.version_set.key}-{key}"


@dataclass(frozen=True, kw_only=True)
class NightResult:
    """``diffs`` has the comparison of the new releases, then one for each of the changes; none if nothing is new.

    ``measured`` tells if there are new releases. ``notes`` are remarks for people.
    """

    directory: Path
    diffs: tuple[ResultDiff, ...]
    document: AlertDocument
    measured: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NightRun:
    """A night that is measured.

    Attributes:
        request: its options.
        watcher: returns the display of the progress for a number of cells.
        say: prints the progress.
    """

    request: NightRequest
    watcher: Callable[[int], Progress]
    say: Callable[[str], None]

    def run(self) -> NightResult:
        """Run it, or go on with an interrupted one.

        Raises:
            UserError: bad input, or the machine cannot run the cells; what was measured is kept.
        """
        request = self.request
        request.run_request.check()
        self.clock.left()  # the time begins
        cases = request.run_request.cases()  # before anything is stored
        self.say(f"Base: {request.base.source}")
        new = candidate_sets.stored(request.directory)[1:] or resolved(request, self.say)
        document = AlertDocument(night=request.night, alerts=())
        diffs, notes = [], []
        if new:
            notes.append(self.measure(cases, new))
            diffs.append(self.compared_with_repeats())
            notes.extend(blocked(diffs[0]))
            document = alert_document(diffs[0], today=request.night, history=request.history)
        moved = {pair.new: len(pair.moves) for each in diffs for pair in each.pairs}
        for number, word in enumerate(request.changes, start=1):
            diffs.append(self.compared_change(word, number))
            document = with_change(document, diffs[-1], request)
        document = self.culprit_search(moved).explained(document)
        if diffs:
            write(request.directory, diffs, document)
        return NightResult(
            directory=request.directory,
            diffs=tuple(diffs),
            document=document,
            measured=bool(new),
            notes=tuple(each for each in notes if each),
        )

    @cached_property
    def clock(self) -> Clock:
        """The time budget, from the first use of it."""
        return Clock(seconds=60.0 * self.request.minutes)

    @cached_property
    def run_request(self) -> RunRequest:
        """The options for runs of the night's own sets."""
        return night_request(self.request.run_request, self.request.directory)

    def measure(self, cases: Sequence[Case], new: Sequence[VersionSet]) -> str:
        """Run the cells of the base set and of the candidates; return a sentence about those that did not fit."""
        cells = NightCells(
            request=self.run_request,
            directory=self.request.directory,
            base=self.request.base,
            base_run=self.request.base_run,
            candidates=new,
            moved=moved_packages(self.request.base, new),
            clock=self.clock,
            watcher=self.watcher,
            say=self.say,
        )
        shortage = cells.run(cases)
        if not (self.request.directory / store.RUN).exists():
            raise UserError(f"--minutes {self.request.minutes:g}: too little for one cell of every set; allow more")
        return shortage

    def compared_with_repeats(self) -> ResultDiff:
        """Compare, repeat what regressed, and compare again.

        Every cause is repeated. If the time does not suffice for all of its cells, the comparison says which were not.
        """
        first = compared_runs(self.request)
        cells = cells_to_repeat(first, self.run_request, self.clock)
        if not cells:
            return first
        self.say(f"Repeating {counted(len(cells), 'cell')} of {len(first.regressions)} that regressed")
        options, directory = self.run_request, self.request.directory
        repeat(directory, REPEATS, watcher=self.watcher, say=self.say, options=options, cells=cells)
        return compared_runs(self.request)

    def compared_change(self, word: str, number: int) -> ResultDiff:
        """Lay a change over the base set, and compare it with the base set's run, or with a new run of it."""
        request = self.request
        if not (request.directory / candidate_sets.NIGHT_SETS).exists():
            candidate_sets.store(request.directory, request.base.lock, ())
        key = request.base.lock.version_set.key
        out = request.directory / f"{CHANGE}-{number}"
        has_run = (request.base_run / store.RUN).exists()
        wish = PrRequest(
            run_request=replace(self.run_request, replacements=(word,), sets=key, out=out),
            base=str(request.base_run) if has_run else key,
            minutes=max(self.clock.left() / 60.0, SHORTEST_MINUTES),
            repeats=REPEATS,
            watcher=self.watcher,
            say=self.say,
        )
        diff, _ = compare_with_base(wish)
        return quarantined(diff, request.quarantine, request.history, request.nights)

    def culprit_search(self, moved: Mapping[str, int]) -> CulpritSearch:
        return CulpritSearch(
            request=self.run_request,
            directory=self.request.directory,
            base=self.request.base.lock.version_set.key,
            moved=moved,
            clock=self.clock,
            pre=bool(self.request.pre),
            say=self.say,
        )


def with_change(document: AlertDocument, diff: ResultDiff, request: NightRequest) -> AlertDocument:
    """Add the alerts of a change; its set has the same name every night, without the commit."""
    more = alert_document(diff, today=request.night, history=request.history)
    names = {pair.new: pair.new.partition("@")[0] + "@" for pair in diff.pairs}
    alerts = [
        each.model_copy(update={"cells": tuple(row.model_copy(update={"set": names[row.set]}) for row in each.cells)})
        for each in more.alerts
    ]
    green, red = ([row.model_copy(update={"set": names[row.set]}) for row in rows] for rows in (more.green, more.red))
    return document.model_copy(
        update={
            "alerts": (*document.alerts, *alerts),
            "green": (*document.green, *green),
            "red": (*document.red, *red),
        }
    )


def resolved(request: NightRequest, say: Callable[[str], None]) -> tuple[VersionSet, ...]:
    """Resolve the candidates, and keep them in the directory of the night; none if nothing is new."""
    found = candidates(request)
    for each in found:
        say(f"New: {each.version_set.key}, {each.version_set.why}")
    return candidate_sets.store(request.directory, request.base.lock, found)[1:] if found else ()


def candidates(request: NightRequest) -> tuple[CandidateSet, ...]:
    """Look for what the index offers that the base set does not have.

    Raises:
        UserError: the machine is at fault, such as an unreachable index.
    """
    return CandidateSearch(
        base=request.base.lock,
        night=request.night,
        uv=uv.on_this_machine(cache_folder()),
        pre=request.pre,
        lowest=request.lowest,
    ).candidates()


def moved_packages(base: BaseSet, new: Sequence[VersionSet]) -> tuple[str, ...]:
    pins = base.lock.version_set.pins
    return tuple(name for name in PACKAGES if any(each.pins[name] != pins[name] for each in new))


def cells_to_repeat(diff: ResultDiff, run_request: RunRequest, clock: Clock) -> frozenset[str]:
    """Return the first regressed cell of each cause, then others as far as the time for repeats allows."""
    by_cause: dict[str, list[CellKey]] = {}
    for each in diff.regressions:
        by_cause.setdefault(each.cause.title if each.cause else "", []).append(CellKey(each.new_set, each.case))
    ordered = [each for row in zip_longest(*by_cause.values()) for each in row if each is not None]
    past = timings.read(cache_folder(), run_request.resolved_device)
    cases = [run_request.suite.cases[each.case] for each in ordered]
    seconds = REPEATS_SHARE * clock.seconds / REPEATS
    count = len(fitting(cases, past, workers=run_request.worker_count, seconds=seconds))
    return frozenset(map(str, ordered[: max(count, len(by_cause))]))


def compared_runs(request: NightRequest) -> ResultDiff:
    base, new = sides.of_folder(request.base_run), sides.of_folder(request.directory)
    key = request.base.lock.version_set.key
    found = compare.compare(
        replace(base, name=key), new, [(key, each.key) for each in new.matrix.sets], across_hardware=False
    )
    known = narrowed(found, knowledge.PUBLISHED)
    return quarantined(known, request.quarantine, request.history, request.nights)


def blocked(diff: ResultDiff) -> Iterator[str]:
    """Yield a sentence for each candidate that cannot be resolved or installed."""
    for key, reason in diff.new.matrix.blocked.items():
        yield f"{key} was not measured: {reason}"


def write(directory: Path, diffs: Sequence[ResultDiff], document: AlertDocument) -> None:
    """Write the comparisons and the alerts.

    Raises:
        UserError: the directory cannot be written.
    """
    try:
        write_whole(directory / DIFF, "\n".join(map(diff_documents.as_markdown, diffs)))
        write_whole(directory / ALERTS, json.dumps(stored(document), indent=1) + "\n")
        write_whole(directory / FILED, filed_text(document))
    except OSError as error:
        raise UserError(f"{directory}: cannot be written ({error.strerror}); free some space, and run again") from None


def filed_text(document: AlertDocument) -> str:
    """Return the issues that the alerts would open, and what they would tell open issues, as Markdown."""
    updates = [*causes(document)]
    parts = [f"# {title(each.main)}\n\n{new_body(each)}" for each in updates if each.is_red]
    green = [f"- {each.main.kind}: {each.main.line} ({each.main.summary})" for each in updates if not each.is_red]
    if green:
        parts.append("\n".join(["# For issues that are open, if any", "", *green]))
    return "\n\n".join(parts) + "\n" if parts else f"Nothing to tell on {document.night}.\n"


def today() -> date:
    return datetime.now(UTC).date()
