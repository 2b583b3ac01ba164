"""Runs the cells set by set: resolves the set, installs it, runs its cells, and stores their outcomes."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.runtime.gpu_pool import LACKING
from cases.runtime.wire import CellReport, ErrorReport, Limits
from cases.space.verdict import Verdict
from matrix.environments import disk, provision
from matrix.evidence import Evidence
from matrix.keys import CellKey, EnvironmentKey
from matrix.run import code_digest, evidence_files, fit, machine, timings
from matrix.run.code_digest import NO_CODE
from matrix.run.execute import Bench, Suite
from matrix.run.outcome import CheckRecord, ErrorRecord, Outcome, SetRecord
from matrix.run.progress import Progress, Silent
from matrix.run.store import WORK
from matrix.versions import locking, locks
from matrix.versions.backends import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cases.runtime.gpu_pool import Pool
    from cases.space.case import Case
    from matrix.environments.environment import Environment
    from matrix.offline.manifest import Packed
    from matrix.run.fit import Fit
    from matrix.run.store import Store
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv

ATTEMPTS: Final = 2  # a lost cell is run once more
LOG_TAIL: Final = 2000


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The store, the tools and the options of a run; everything except the sets and the cases."""

    store: Store
    uv: Uv
    cache: Path
    device: str = "cpu"
    pool: Pool | None = None  # of GPUs; None on the CPU
    backend: Backend = field(default_factory=Backend)
    packed: Packed | None = None
    workers: int = field(default_factory=machine.cores)
    keep_free_bytes: int = disk.BUDGET
    lock_folder: Path = locks.PACKAGED
    suite: Suite = field(default_factory=Suite)
    limits: Limits = field(default_factory=Limits)
    cold: bool = False
    cold_sample: int = 1
    repeats: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)  # further ones of the environment of ranks
    watcher: Progress = field(default_factory=Silent)
    say: Callable[[str], None] = print

    @property
    def hardware(self) -> str:
        return self.store.record.hardware


def run(work: Work, ctx: RunContext) -> None:
    """Measure every cell that the store lacks; a set may occur more than once in the work."""
    for version_set, _ in work:
        if version_set.key not in ctx.store.sets:
            ctx.store.note(set_record(version_set, lock=""))
    for version_set, cases in work:
        measure(version_set, cases, ctx)
        shutil.rmtree(ctx.store.directory / WORK, ignore_errors=True)


def measure(version_set: VersionSet, cases: Sequence[Case], ctx: RunContext) -> None:
    """Measure one set. If it cannot be resolved or installed, store its cells as blocked."""
    ctx.watcher.set_started(version_set.key, len(cases) * ctx.repeats)
    began, known = time.monotonic(), len(ctx.store.outcomes)
    prepared = prepare(version_set, ctx)
    lock = str(EnvironmentKey(prepared.digest, ctx.backend.name)) if isinstance(prepared, locks.Lock) else ""
    fitting = fit.check_gpus(prepared, ctx.backend.name, ctx.pool) if isinstance(prepared, locks.Lock) else fit.Fit()
    for repeat in range(1, ctx.repeats + 1):
        missing = unfinished(version_set, cases, lock, repeat, ctx)
        if isinstance(prepared, Evidence):
            block(version_set, missing, prepared, lock, repeat, ctx)
            break
        runnable = [case for case in missing if not skip_if_blocked(version_set, case, lock, repeat, fitting, ctx)]
        if runnable:
            install_and_run(version_set, runnable, prepared, repeat, ctx)
    ctx.watcher.set_done(version_set.key)
    new = ctx.store.outcomes[known:]
    if new and not ctx.variables:  # with further variables, ranks do more or other work than usual
        timings.note(ctx.cache, ctx.device, new, wall_s=time.monotonic() - began, workers=ctx.workers)


def prepare(version_set: VersionSet, ctx: RunContext) -> locks.Lock | Evidence:
    ctx.watcher.stage(version_set.key, "resolving")
    if ctx.packed is not None:
        return ctx.packed.lock(version_set)
    return locking.read_or_resolve(version_set, uv=ctx.uv, folder=ctx.lock_folder)


def install_and_run(
    version_set: VersionSet, cases: Sequence[Case], lock: locks.Lock, repeat: int, ctx: RunContext
) -> None:
    ctx.watcher.stage(version_set.key, "installing")
    environment = install(lock, ctx)
    if isinstance(environment, Evidence):
        block(version_set, cases, environment, str(EnvironmentKey(lock.digest, ctx.backend.name)), repeat, ctx)
        return
    try:
        ctx.store.note(set_record(version_set, lock=lock.digest, backend=environment.backend, notes=environment.notes))
        ctx.watcher.stage(version_set.key, "starting")
        run_cells(version_set, cases, environment, repeat, ctx)
    finally:
        environment.release()


def install(lock: locks.Lock, ctx: RunContext) -> Environment | Evidence:
    """Install an environment within the disk budget."""

    def make_room() -> None:
        disk.keep_free(ctx.cache, uv=ctx.uv, budget_bytes=ctx.keep_free_bytes, say=ctx.say)

    if ctx.packed is not None:
        return ctx.packed.install(lock, make_room=make_room)
    return provision.install(lock, cache=ctx.cache, uv=ctx.uv, backend=ctx.backend, make_room=make_room)


def unfinished(version_set: VersionSet, cases: Sequence[Case], lock: str, repeat: int, ctx: RunContext) -> list[Case]:
    """The cells without a stored result of this lock, case code and hardware.

    Lost and blocked cells run again, because the network may have been the cause. So do cells that found no checkpoint
    of another set, and cells that found no free GPUs.
    """
    measured = (each for each in ctx.store.outcomes if is_measured(each) and ctx.suite.is_current(each))
    finished = {(each.set, each.case, each.lock, each.hardware, each.repeat) for each in measured}
    return [case for case in cases if (version_set.key, case.id, lock, ctx.hardware, repeat) not in finished]


def is_measured(outcome: Outcome) -> bool:
    is_waiting = outcome.verdict is Verdict.SKIP and ("saved_under" in outcome.options or "lacking" in outcome.facts)
    return outcome.verdict not in {Verdict.LOST, Verdict.BLOCKED} and not is_waiting


def skip_if_blocked(version_set: VersionSet, case: Case, lock: str, repeat: int, fitting: Fit, ctx: RunContext) -> bool:
    """Store a case that cannot run on this machine as skipped; return whether it was stored."""
    shortage = fitting.shortage(case.ranks)
    reason = shortage or why_not(case, ctx)
    if not reason:
        return False
    known = blank(version_set, case, lock, ctx)
    result = {"verdict": Verdict.SKIP, "reason": reason, "repeat": repeat, "facts": LACKING if shortage else {}}
    finish(known.model_copy(update=result), ctx)
    return True


def why_not(case: Case, ctx: RunContext) -> str:
    if case.source and not carried(ctx, case.source, case.begun).exists():
        return f"{case.source} has no saved files to load; see the result of its case {case.begun}"
    return ""


def block(
    version_set: VersionSet, cases: Sequence[Case], why: Evidence, lock: str, repeat: int, ctx: RunContext
) -> None:
    if not cases:
        return
    places = {str(ctx.cache): "<cache>", str(ctx.store.directory.absolute()): "<run>"}
    reason = evidence_files.scrubbed(why.reason, places)
    ctx.store.note(set_record(version_set, lock=lock, blocked=f"{why.phase.value}: {reason}"))
    for case in cases:
        outcome = blank(version_set, case, lock, ctx).model_copy(
            update={"verdict": Verdict.BLOCKED, "phase": why.phase, "reason": reason, "repeat": repeat}
        )
        finish(outcome, ctx)


def run_cells(
    version_set: VersionSet, cases: Sequence[Case], environment: Environment, repeat: int, ctx: RunContext
) -> None:
    """Run the cells, and run lost ones once more."""
    waiting = {case.id: case for case in cases}
    for attempt in range(1, ATTEMPTS + 1):
        last = attempt == ATTEMPTS
        scratch = new_folder(ctx.store.directory.absolute() / WORK, f"{version_set.key}-{attempt}-")
        bench = Bench(
            scratch=scratch,
            device=ctx.device,
            workers=ctx.workers,
            suite=ctx.suite,
            limits=ctx.limits,
            cold=ctx.cold,
            more=ctx.variables,
        )
        sources = {case.id: str(carried(ctx, case.source, case.begun)) for case in waiting.values() if case.source}
        chosen = sample(version_set, list(waiting), ctx)
        order = sorted(waiting, key=lambda name: -waiting[name].ranks)  # cells with most ranks first
        for report in bench.run(order, environment, cold_sample=chosen, sources=sources):
            case = waiting.get(report.name)
            if case is None or (report.verdict is Verdict.LOST and not last):
                continue  # reported twice, or due for another attempt
            del waiting[case.id]
            keep_saved_files(version_set, case, bench, ctx)
            builder = OutcomeBuilder(
                version_set=version_set,
                case=case,
                environment=environment,
                bench=bench,
                attempt=attempt,
                repeat=repeat,
                ctx=ctx,
            )
            finish(builder.outcome(report), ctx)
        if not waiting:
            return
    for case in waiting.values():
        builder = OutcomeBuilder(
            version_set=version_set,
            case=case,
            environment=environment,
            bench=bench,
            attempt=ATTEMPTS,
            repeat=repeat,
            ctx=ctx,
        )
        finish(builder.unreported(), ctx)


def carried(ctx: RunContext, version_set: str, case: str) -> Path:
    """The folder of a run with the files that a cell saved for other version sets."""
    return ctx.store.directory.absolute() / "carried" / str(CellKey(version_set, case))


def keep_saved_files(version_set: VersionSet, case: Case, bench: Bench, ctx: RunContext) -> None:
    saved = bench.job_folder(case.id) / "kept"
    if case.options.flow == "portability" and not case.source and saved.exists() and any(saved.iterdir()):
        shutil.copytree(saved, carried(ctx, version_set.key, case.id), dirs_exist_ok=True)


def new_folder(parent: Path, prefix: str) -> Path:
    """Create a folder with a new name, because ranks of a killed run may still write to their old folder."""
    parent.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def sample(version_set: VersionSet, cells: Sequence[str], ctx: RunContext) -> list[str]:
    """The cells that also run from a cold start: different ones for each set, the same ones in each run."""
    order = sorted(cells, key=lambda cell: sha256(str(CellKey(version_set.key, cell)).encode()).digest())
    return [] if ctx.cold else order[: ctx.cold_sample]


def finish(outcome: Outcome, ctx: RunContext) -> None:
    ctx.store.append(outcome)
    ctx.watcher.cell_done(outcome)


def set_record(
    version_set: VersionSet, *, lock: str, backend: str = "", notes: tuple[str, ...] = (), blocked: str = ""
) -> SetRecord:
    return SetRecord(
        key=version_set.key,
        python=version_set.python,
        pins=dict(version_set.pins),
        as_of=version_set.as_of.isoformat(),
        why=version_set.why,
        default=version_set.default,
        lock=lock,
        torch_backend=backend,
        notes=notes,
        blocked=blocked,
    )


def blank(version_set: VersionSet, case: Case, lock: str, ctx: RunContext) -> Outcome:
    """The outcome of a cell before anything ran."""
    return Outcome(
        set=version_set.key,
        case=case.id,
        group=case.group,
        why=case.why,
        options={**case.options.stated, **({"saved_under": case.source} if case.source else {})},
        verdict=Verdict.LOST,
        lock=lock,
        code=NO_CODE,
        hardware=ctx.hardware,
        started=datetime.now(UTC),
        seconds=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class OutcomeBuilder:
    """Builds the outcome of a cell from the report of an environment."""

    version_set: VersionSet
    case: Case
    environment: Environment
    bench: Bench
    attempt: int
    repeat: int
    ctx: RunContext

    def outcome(self, report: CellReport) -> Outcome:
        # Any text may contain a path: a fact, a check, a reason.
        report = CellReport.from_plain(evidence_files.scrubbed_values(report.to_plain(), self.places))
        modules = self.ctx.suite.stamp(self.case, report.modules)
        return self.start().model_copy(
            update={
                "verdict": report.verdict,
                "reason": report.reason,
                "phase": report.phase,
                "checks": tuple(CheckRecord(**vars(check)) for check in report.checks),
                "error": self.error(report.error),
                "evidence": {} if report.verdict in {Verdict.PASS, Verdict.SKIP} else self.evidence(),
                "metrics": report.metrics,
                "facts": report.every_fact,
                "code": code_digest.digest(modules),
                "modules": modules,
                "started": report.started or datetime.now(UTC),
                "seconds": report.seconds,
            }
        )

    def unreported(self) -> Outcome:
        """The outcome of a cell that the test session never reported, a failure of the harness or the machine."""
        log = self.bench.log
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        reason = "the test session in the environment ended without a report of this cell"
        traceback = evidence_files.scrubbed_tail(text, LOG_TAIL, self.places)
        error = ErrorRecord(type="NoReport", message=reason, traceback=traceback)
        return self.start().model_copy(update={"reason": reason, "error": error, "evidence": self.evidence()})

    def start(self) -> Outcome:
        lock = str(EnvironmentKey(self.environment.lock, self.environment.backend))
        known = blank(self.version_set, self.case, lock, self.ctx)
        return known.model_copy(update={"attempt": self.attempt, "repeat": self.repeat})

    def error(self, error: ErrorReport | None) -> ErrorRecord | None:
        if error is None:
            return None
        return ErrorRecord(type=error.type, message=error.message, rank=error.rank, traceback=error.traceback)

    def evidence(self) -> dict[str, str]:
        """The cell's logs, copied next to the outcomes, by paths relative to the run."""
        cell = str(CellKey(self.version_set.key, self.case.id))
        target = self.ctx.store.directory / "logs" / cell
        paths = evidence_files.keep(self.bench.job_folder(self.case.id), target, self.places)
        return {what: f"logs/{cell}/{name}" for what, name in paths.items()}

    @cached_property
    def places(self) -> dict[str, str]:
        """Paths of this machine, and the placeholder of each."""
        library = self.environment.standard_library
        host = self.ctx.packed.host_paths if self.ctx.packed else ()
        return {
            **({str(library): f"<python>/lib/{library.name}"} if library else {}),
            **{path: f"<host>/{Path(path).name}" for path in host},
            str(self.environment.root): "<environment>",
            str(self.bench.scratch / "suite"): "<suite>",
            str(self.bench.scratch): "<scratch>",
            str(self.ctx.cache): "<cache>",
            str(self.ctx.store.directory.absolute()): "<run>",
        }
