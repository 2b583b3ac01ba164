"""One night: finds what is new, measures it, compares, repeats, bisects, and writes what it would tell people."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from reports.answers.diff import compare, sides
from reports.commands.diff import alert_document, quarantined
from reports.commands.nights.culprits import CulpritSearch
from reports.commands.nights.measuring import NightCells, night_request
from reports.commands.runs.diff_repeats import repeat
from reports.commands.runs.pr_comparison import PrRequest, compare_with_base
from reports.render import diff_documents
from reports.render.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import date
    from pathlib import Path

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


def run(request: NightRequest, *, watcher: Callable[[int], Progress], say: Callable[[str], None]) -> NightResult:
    """Run a night, or go on with an interrupted one.

    Raises:
        UserError: bad input, or the machine cannot run the cells; what was measured is kept.
    """
    request.run_request.check()
    cases = request.run_request.cases()  # before anything is stored
    clock = Clock(seconds=60.0 * request.minutes)
    say(f"Base: {request.base.source}")
    new = candidate_sets.stored(request.directory)[1:] or resolved(request, say)
    own_request = night_request(request.run_request, request.directory)
    found, notes = [], []
    document = AlertDocument(night=request.night, alerts=())
    if new:
        cells = NightCells(
            request=own_request,
            directory=request.directory,
            base=request.base,
            base_run=request.base_run,
            candidates=new,
            moved=moved_packages(request.base, new),
            clock=clock,
            watcher=watcher,
            say=say,
        )
        notes.append(cells.run(cases))
        if not (request.directory / store.RUN).exists():
            raise UserError(f"--minutes {request.minutes:g}: too little for one cell of every set; allow more")
        found.append(compared_with_repeats(request, own_request, clock=clock, watcher=watcher, say=say))
        notes.extend(blocked(found[0]))
        document = alert_document(found[0], today=request.night, history=request.history)
    for number, word in enumerate(request.changes, start=1):
        diff = compared_change(request, own_request, word, number, clock=clock, watcher=watcher, say=say)
        found.append(quarantined(diff, request.quarantine, request.history, request.nights))
        document = with_change(document, found[-1], request)
    search = CulpritSearch(
        request=own_request,
        directory=request.directory,
        base=request.base.lock.version_set.key,
        moved={pair.new: len(pair.moves) for each in found[: bool(new)] for pair in each.pairs},
        clock=clock,
        pre=bool(request.pre),
        say=say,
    )
    document = search.explained(document)
    if found:
        write(request.directory, found, document)
    return NightResult(
        directory=request.directory,
        diffs=tuple(found),
        document=document,
        measured=bool(new),
        notes=tuple(each for each in notes if each),
    )


def compared_change(
    request: NightRequest,
    run_request: RunRequest,
    word: str,
    number: int,
    *,
    clock: Clock,
    watcher: Callable[[int], Progress],
    say: Callable[[str], None],
) -> ResultDiff:
    """Lay a change over the base set, and compare it with the base set's run, or with a new run of it."""
    if not (request.directory / candidate_sets.NIGHT_SETS).exists():
        candidate_sets.store(request.directory, request.base.lock, ())
    base = request.base.lock.version_set.key
    own = replace(run_request, replacements=(word,), sets=base, out=request.directory / f"{CHANGE}-{number}")
    has_run = (request.base_run / store.RUN).exists()
    wish = PrRequest(
        run_request=own,
        base=str(request.base_run) if has_run else base,
        minutes=max(clock.left() / 60.0, SHORTEST_MINUTES),
        repeats=REPEATS,
        watcher=watcher,
        say=say,
    )
    return compare_with_base(wish)[0]


def with_change(document: AlertDocument, diff: ResultDiff, request: NightRequest) -> AlertDocument:
    """Add the alerts of a change; its set has the same name every night, without the commit."""
    more = alert_document(diff, today=request.night, history=request.history)
    names = {pair.new: pair.new.partition("@")[0] + "@" for pair in diff.pairs}
    alerts = [
        each.model_copy(update={"cells": tuple(row.model_copy(update={"set": names[row.set]}) for row in each.cells)})
        for each in more.alerts
    ]
    green = [row.model_copy(update={"set": names[row.set]}) for row in more.green]
    return document.model_copy(update={"alerts": (*document.alerts, *alerts), "green": (*document.green, *green)})


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


def compared_with_repeats(
    request: NightRequest,
    run_request: RunRequest,
    *,
    clock: Clock,
    watcher: Callable[[int], Progress],
    say: Callable[[str], None],
) -> ResultDiff:
    """Compare, repeat what regressed, and compare again.

    Every cause is repeated. If the time does not suffice for all of its cells, the comparison says which were not.
    """
    first = compared_runs(request)
    cells = cells_to_repeat(first, run_request, clock)
    if not cells:
        return first
    say(f"Repeating {counted(len(cells), 'cell')} of {len(first.regressions)} that regressed")
    repeat(request.directory, REPEATS, watcher=watcher, say=say, options=run_request, cells=cells)
    return compared_runs(request)


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
    return quarantined(found, request.quarantine, request.history, request.nights)


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
