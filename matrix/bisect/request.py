"""Checks the request for a bisection, prepares its ends, and runs it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from cases.space.renamed import current_case_id
from matrix.bisect.answer import ANSWER
from matrix.bisect.answering import answered, no_api, with_api_changes
from matrix.bisect.candidate import MixedEnvironment, of_text
from matrix.bisect.differences import Differences, packages, replaced
from matrix.bisect.ends import MINUTES
from matrix.bisect.failure import no_cause
from matrix.bisect.releases import NearbyResolution
from matrix.bisect.runner import FOLDER, CandidateRunner
from matrix.bisect.search import Bisection, End, lock_of
from matrix.environments.repository import opened
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.keys import SEPARATOR
from matrix.run import pipeline, store
from matrix.run.progress import Silent
from matrix.run.request import RUNS, prepare_context
from matrix.versions import sets as known_sets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases.space.case import Case
    from matrix.bisect.answer import BisectAnswer
    from matrix.environments.linked_environment import InstalledPackage
    from matrix.run.context import RunContext
    from matrix.run.outcome import Outcome
    from matrix.run.request import RunRequest
    from matrix.versions.locks import Lock
    from matrix.versions.moved_packages import MovedPackage
    from matrix.versions.sets import VersionSet

SUGGESTIONS: Final = 3


@dataclass(frozen=True, kw_only=True)
class BisectRequest:
    """The options of ``ftmatrix bisect``.

    Attributes:
        run_request: the options that it shares with a run.
        cell: the red cell, or its case if ``bad`` names the set.
        good: the set on which the case is green.
        bad: the set on which it is red.
        since: instead of ``good``, a package at an earlier version, such as ``peft==0.11.1``.
        pre: try pre-releases as well.
        git: a repository of the guilty package.
        minutes: how long the search may take if the bad end flakes.
    """

    run_request: RunRequest
    cell: str
    good: str = ""
    bad: str = ""
    since: str = ""
    pre: bool = False
    git: str = ""
    minutes: float = MINUTES


@dataclass(frozen=True, kw_only=True)
class BisectTask:
    """A checked request: the case, and the sets of both ends."""

    case: Case
    bad: VersionSet
    good: VersionSet | None  # None: the bad set with the pins of ``since``
    since: dict[str, str]

    @property
    def name(self) -> str:
        """The name of the run directory."""
        start = self.good.key if self.good else "-".join(f"{name}{version}" for name, version in self.since.items())
        return f"bisect-{self.case.id}-{start}-{self.bad.key}"


def checked_task(request: BisectRequest) -> BisectTask:
    """Look up the case and the sets.

    Raises:
        UserError: one does not exist, or the options contradict each other.
    """
    key, separator, name = request.cell.partition(SEPARATOR)
    if not separator:
        key, name = "", request.cell
    if key and request.bad and key != request.bad:
        raise UserError(f"the cell is of set {key}, and --bad names {request.bad}; leave one of them out")
    if bool(request.good) == bool(request.since):
        raise UserError("name the green end by --good SET, or by --since PACKAGE==VERSION")
    if not (key or request.bad):
        raise UserError(f"{request.cell}: name the red set by --bad SET, or as SET{SEPARATOR}CASE")
    table = {each.key: each for each in request.run_request.known}
    good = known_sets.find(request.good, table) if request.good else None
    bad = known_sets.find(request.bad or key, table)
    since = dict([pin(request.since)]) if request.since else {}
    return BisectTask(case=found_case(name, request.run_request), bad=bad, good=good, since=since)


def pin(text: str) -> tuple[str, str]:
    name, separator, version = text.partition("==")
    if not separator:
        raise UserError(f"--since {text}: expected a package and a version, such as peft==0.11.1")
    return name.strip().lower(), known_sets.exact_version(version.strip(), at=text)


def found_case(name: str, run_request: RunRequest) -> Case:
    cases = run_request.suite.cases
    case = cases.get(current_case_id(name))
    if case is None:
        near = get_close_matches(name, cases, n=SUGGESTIONS, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`ftmatrix plan` lists all"
        raise UserError(f"unknown case {name!r}; {hint}")
    return case


def run(
    request: BisectRequest,
    *,
    cause: Callable[[Outcome], str] = no_cause,
    api: Callable[[MovedPackage, Outcome], str] = no_api,
    say: Callable[[str], None] = print,
) -> tuple[Path, BisectAnswer]:
    """Search; return the run directory and the answer, which is stored there as well.

    The same request continues an interrupted search: finished cells are not run again.

    Args:
        request: the options.
        cause: returns the known cause of a failure; empty if it is unknown.
        api: returns what a release changed in the API of its package, given the failure; empty if nothing.
        say: prints the progress.

    Raises:
        UserError: bad input, or nothing to search; cells that ran are kept.
    """
    run_request = replace(request.run_request, cold_sample=0, repeats=1)
    run_request.check()
    task = checked_task(request)
    directory = run_request.out or RUNS / task.name
    run_request = replace(run_request, out=directory, resume=(directory / store.RUN).exists())
    began = time.monotonic()
    ctx = prepare_context(run_request, [], watcher=Silent(), say=say)
    with ExitStack() as stack:
        stack.callback(ctx.store.close)
        stack.callback(ctx.store.abandon)  # only if nothing ran
        repository = opened(request.git, parent=ctx.cache / FOLDER) if request.git else None
        bisection = prepared(task, request, ctx, stack, say)
        bisection.cause = cause
        answer = with_api_changes(answered(bisection, task.case, repository, began=began), bisection, api)
    (directory / ANSWER).write_text(answer.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
    return directory, answer


def prepared(
    task: BisectTask, request: BisectRequest, ctx: RunContext, stack: ExitStack, say: Callable[[str], None]
) -> Bisection:
    """Install both ends, and compare their packages.

    Raises:
        UserError: an end cannot be installed, or the ends do not differ.
    """
    bad_lock = locked(task.bad, ctx)
    good_lock = locked(task.good, ctx) if task.good else since_lock(task, bad_lock, ctx)
    check_locks(good_lock, bad_lock)
    runner = CandidateRunner(ctx=ctx, case=task.case, ends=[], width=width(task.case, ctx))
    stack.callback(runner.clean_up)
    good = end(good_lock, runner, stack, install=task.good is not None)
    bad = end(bad_lock, runner, stack, install=True)
    python = bad_lock.version_set.python
    differences = compared(contents(good, runner), contents(bad, runner), python=python)
    return Bisection(
        runner=runner, good=good, bad=bad, differences=differences, pre=request.pre, minutes=request.minutes, say=say
    )


def contents(of_end: End, runner: CandidateRunner) -> list[InstalledPackage]:
    """Where the packages of an end are installed."""
    found = runner.packages(of_end.candidate)
    if isinstance(found, Evidence):
        raise UserError(f"{of_end.candidate.key} cannot be installed: {found.reason}; choose another end")
    return found


def compared(good: list[InstalledPackage], bad: list[InstalledPackage], *, python: str) -> Differences:
    return Differences(
        good=packages(good, python=python),
        bad=packages(bad, python=python),
        replaced=replaced(good, bad),
    )


def locked(version_set: VersionSet, ctx: RunContext) -> Lock:
    lock = pipeline.lock_of(version_set, ctx)
    if isinstance(lock, Evidence):
        raise UserError(f"{version_set.key} cannot be resolved: {lock.reason}; choose another set")
    return lock


def since_lock(task: BisectTask, bad: Lock, ctx: RunContext) -> Lock:
    """The bad lock with a package at an earlier version, and what that version requires."""
    near = NearbyResolution(
        base=bad.versions,
        bounds={},
        extras=tuple(task.bad.extras),
        as_of=task.bad.as_of,
        python=task.bad.python,
        uv=ctx.uv,
    )
    text = near.resolve(task.since)
    if isinstance(text, Evidence):
        words = " ".join(f"{name}=={version}" for name, version in task.since.items())
        raise UserError(f"{task.bad.key} with {words} cannot be resolved: {text.reason}; choose another --since")
    return lock_of(of_text(text, base=bad, bad=task.bad, label="the good end", named=task.since))


def check_locks(good: Lock, bad: Lock) -> None:
    if good.version_set.python != bad.version_set.python:
        versions = f"{good.version_set.python} and {bad.version_set.python}"
        raise UserError(f"the ends have different Pythons, {versions}; choose two sets with the same")
    if good.digest == bad.digest:
        raise UserError(f"{good.version_set.key} and {bad.version_set.key} have the same packages; choose two sets")


def end(lock: Lock, runner: CandidateRunner, stack: ExitStack, *, install: bool) -> End:
    """An end, with its environment installed, or linked to the installed one."""
    ctx = runner.ctx
    root = None
    if install:
        ctx.say(f"{lock.version_set.key}: installing, unless it is in the cache")
        environment = pipeline.install(lock, ctx)
        if isinstance(environment, Evidence):
            raise UserError(f"{lock.version_set.key} cannot be installed: {environment.reason}; choose another set")
        stack.callback(environment.release)
        runner.ends = [*runner.ends, environment]
        root = environment.root
    label = f"{lock.version_set.key} as it is"
    return End(
        lock=lock, candidate=MixedEnvironment(label=label, version_set=lock.version_set, lock=lock, installed=root)
    )


def width(case: Case, ctx: RunContext) -> int:
    """The number of cells that run at once: one per worker, and per group of as many cores or GPUs as ranks."""
    places = len(ctx.pool.gpus) if ctx.pool is not None else ctx.workers
    return max(1, min(ctx.workers, places // case.ranks))
