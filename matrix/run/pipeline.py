"""The order of the program, written once: set by set, resolve, install, run the cells, keep the outcomes."""

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
    from collections.abc import Callable, Sequence

    from cases.runtime.gpu_pool import Pool
    from cases.space.case import Case
    from matrix.environments.environment import Environment
    from matrix.offline.manifest import Packed
    from matrix.run.fit import Fit
    from matrix.run.store import Store
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv

    Work = Sequence[tuple[VersionSet, Sequence[Case]]]

ATTEMPTS: Final = 2  # a lost cell is run once more
LOG_TAIL: Final = 2000


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """Everything that a run needs besides the sets and the cases."""

    store: Store
    uv: Uv
    cache: Path
    device: str = "cpu"
    pool: Pool | None = None  # of the GPUs, where cells run on them
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
    watcher: Progress = field(default_factory=Silent)
    say: Callable[[str], None] = print

    @property
    def hardware(self) -> str:
        return self.store.record.hardware


def run(work: Work, at: Workshop) -> None:
    """Measure every cell that the store does not hold yet; a set may come more than once."""
    for version_set, _ in work:
        if version_set.key not in at.store.sets:
            at.store.note(met(version_set, lock=""))
    for version_set, cases in work:
        measure(version_set, cases, at)
        shutil.rmtree(at.store.directory / WORK, ignore_errors=True)


def measure(version_set: VersionSet, cases: Sequence[Case], at: Workshop) -> None:
    """Measure one set. A set that cannot be resolved or installed is a finding, not an error."""
    at.watcher.set_started(version_set.key, len(cases) * at.repeats)
    began, known = time.monotonic(), len(at.store.outcomes)
    prepared = prepare(version_set, at)
    lock = str(EnvironmentKey(prepared.digest, at.backend.name)) if isinstance(prepared, locks.Lock) else ""
    fitting = fit.look(prepared, at.backend.name, at.pool) if isinstance(prepared, locks.Lock) else fit.Fit()
    for repeat in range(1, at.repeats + 1):
        missing = unfinished(version_set, cases, lock, repeat, at)
        if isinstance(prepared, Evidence):
            block(version_set, missing, prepared, lock, repeat, at)
            break
        runnable = [case for case in missing if not skipped(version_set, case, lock, repeat, fitting, at)]
        if runnable:
            install_and_run(version_set, runnable, prepared, repeat, at)
    at.watcher.set_done(version_set.key)
    new = at.store.outcomes[known:]
    if new:
        timings.note(at.cache, at.device, new, wall_s=time.monotonic() - began, workers=at.workers)


def prepare(version_set: VersionSet, at: Workshop) -> locks.Lock | Evidence:
    at.watcher.stage(version_set.key, "resolving")
    if at.packed is not None:
        return at.packed.lock(version_set)
    return locking.read_or_resolve(version_set, uv=at.uv, folder=at.lock_folder)


def install_and_run(
    version_set: VersionSet, cases: Sequence[Case], lock: locks.Lock, repeat: int, at: Workshop
) -> None:
    at.watcher.stage(version_set.key, "installing")
    environment = install(lock, at)
    if isinstance(environment, Evidence):
        block(version_set, cases, environment, str(EnvironmentKey(lock.digest, at.backend.name)), repeat, at)
        return
    try:
        at.store.note(met(version_set, lock=lock.digest, backend=environment.backend, notes=environment.notes))
        at.watcher.stage(version_set.key, "starting")
        run_cells(version_set, cases, environment, repeat, at)
    finally:
        environment.release()


def install(lock: locks.Lock, at: Workshop) -> Environment | Evidence:
    """Install an environment within the disk budget."""

    def make_room() -> None:
        disk.keep_free(at.cache, uv=at.uv, budget_bytes=at.keep_free_bytes, say=at.say)

    if at.packed is not None:
        return at.packed.install(lock, make_room=make_room)
    return provision.install(lock, cache=at.cache, uv=at.uv, backend=at.backend, make_room=make_room)


def unfinished(version_set: VersionSet, cases: Sequence[Case], lock: str, repeat: int, at: Workshop) -> list[Case]:
    """The cells that the store does not hold as measured with this lock, case code and hardware.

    Lost and blocked cells run again: the network may have blocked them. So do cells that found no checkpoint of
    another set, and cells that found no free GPUs.
    """
    measured = (each for each in at.store.outcomes if is_measured(each) and at.suite.is_current(each))
    have = {(each.set, each.case, each.lock, each.hardware, each.repeat) for each in measured}
    return [case for case in cases if (version_set.key, case.id, lock, at.hardware, repeat) not in have]


def is_measured(outcome: Outcome) -> bool:
    waits = outcome.verdict is Verdict.SKIP and ("saved_under" in outcome.options or "lacking" in outcome.facts)
    return outcome.verdict not in {Verdict.LOST, Verdict.BLOCKED} and not waits


def skipped(version_set: VersionSet, case: Case, lock: str, repeat: int, fitting: Fit, at: Workshop) -> bool:
    """Whether the case cannot run here; if so, store it as skipped."""
    lacking = fitting.lacks(case.ranks)
    reason = lacking or why_not(case, at)
    if not reason:
        return False
    known = blank(version_set, case, lock, at)
    found = {"verdict": Verdict.SKIP, "reason": reason, "repeat": repeat, "facts": LACKING if lacking else {}}
    finish(known.model_copy(update=found), at)
    return True


def why_not(case: Case, at: Workshop) -> str:
    if case.source and not carried(at, case.source, case.begun).exists():
        return f"{case.source} saved nothing that could be loaded: see its {case.begun}"
    return ""


def block(version_set: VersionSet, cases: Sequence[Case], why: Evidence, lock: str, repeat: int, at: Workshop) -> None:
    if not cases:
        return
    places = {str(at.cache): "<cache>", str(at.store.directory.absolute()): "<run>"}
    reason = evidence_files.scrubbed(why.reason, places)
    at.store.note(met(version_set, lock=lock, blocked=f"{why.phase.value}: {reason}"))
    for case in cases:
        outcome = blank(version_set, case, lock, at).model_copy(
            update={"verdict": Verdict.BLOCKED, "phase": why.phase, "reason": reason, "repeat": repeat}
        )
        finish(outcome, at)


def run_cells(
    version_set: VersionSet, cases: Sequence[Case], environment: Environment, repeat: int, at: Workshop
) -> None:
    """Run the cells, and lost ones once more."""
    waiting = {case.id: case for case in cases}
    for attempt in range(1, ATTEMPTS + 1):
        last = attempt == ATTEMPTS
        scratch = new_folder(at.store.directory.absolute() / WORK, f"{version_set.key}-{attempt}-")
        bench = Bench(
            scratch=scratch, device=at.device, workers=at.workers, suite=at.suite, limits=at.limits, cold=at.cold
        )
        sources = {case.id: str(carried(at, case.source, case.begun)) for case in waiting.values() if case.source}
        chosen = sample(version_set, list(waiting), at)
        order = sorted(waiting, key=lambda name: -waiting[name].ranks)  # those that need most GPUs first
        for report in bench.run(order, environment, cold_sample=chosen, sources=sources):
            case = waiting.get(report.name)
            if case is None or (report.verdict is Verdict.LOST and not last):
                continue  # reported twice, or to be run once more
            del waiting[case.id]
            keep_what_is_carried(version_set, case, bench, at)
            builder = OutcomeBuilder(
                version_set=version_set,
                case=case,
                environment=environment,
                bench=bench,
                attempt=attempt,
                repeat=repeat,
                at=at,
            )
            finish(builder.outcome(report), at)
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
            at=at,
        )
        finish(builder.silence(), at)


def carried(at: Workshop, version_set: str, case: str) -> Path:
    """The folder in which a run keeps what a cell saved for other version sets."""
    return at.store.directory.absolute() / "carried" / str(CellKey(version_set, case))


def keep_what_is_carried(version_set: VersionSet, case: Case, bench: Bench, at: Workshop) -> None:
    saved = bench.job_folder(case.id) / "kept"
    if case.options.flow == "portability" and not case.source and saved.exists() and any(saved.iterdir()):
        shutil.copytree(saved, carried(at, version_set.key, case.id), dirs_exist_ok=True)


def new_folder(parent: Path, prefix: str) -> Path:
    """Make a new folder: ranks of a run that was just killed may still write to theirs."""
    parent.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def sample(version_set: VersionSet, cells: Sequence[str], at: Workshop) -> list[str]:
    """The cells that a cold start must confirm: different ones for each set, the same ones in each run."""
    order = sorted(cells, key=lambda cell: sha256(str(CellKey(version_set.key, cell)).encode()).digest())
    return [] if at.cold else order[: at.cold_sample]


def finish(outcome: Outcome, at: Workshop) -> None:
    at.store.append(outcome)
    at.watcher.cell_done(outcome)


def met(
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


def blank(version_set: VersionSet, case: Case, lock: str, at: Workshop) -> Outcome:
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
        hardware=at.hardware,
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
    at: Workshop

    def outcome(self, report: CellReport) -> Outcome:
        # A path may be in any text: a fact, a check, a reason.
        report = CellReport.from_plain(evidence_files.scrubbed_values(report.to_plain(), self.places))
        modules = self.at.suite.stamp(self.case, report.modules)
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

    def silence(self) -> Outcome:
        """The outcome of a cell that the tests never reported: our fault or the machine's."""
        log = self.bench.log
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        reason = "the test process in the environment ended without a word about this cell"
        traceback = evidence_files.scrubbed_tail(text, LOG_TAIL, self.places)
        error = ErrorRecord(type="NoReport", message=reason, traceback=traceback)
        return self.start().model_copy(update={"reason": reason, "error": error, "evidence": self.evidence()})

    def start(self) -> Outcome:
        lock = str(EnvironmentKey(self.environment.lock, self.environment.backend))
        known = blank(self.version_set, self.case, lock, self.at)
        return known.model_copy(update={"attempt": self.attempt, "repeat": self.repeat})

    def error(self, error: ErrorReport | None) -> ErrorRecord | None:
        if error is None:
            return None
        return ErrorRecord(type=error.type, message=error.message, rank=error.rank, traceback=error.traceback)

    def evidence(self) -> dict[str, str]:
        """The cell's logs, copied next to the outcomes, by paths relative to the run."""
        cell = str(CellKey(self.version_set.key, self.case.id))
        target = self.at.store.directory / "logs" / cell
        kept = evidence_files.keep(self.bench.job_folder(self.case.id), target, self.places)
        return {what: f"logs/{cell}/{name}" for what, name in kept.items()}

    @cached_property
    def places(self) -> dict[str, str]:
        """Paths of this machine, and the placeholder of each."""
        library = self.environment.standard_library
        host = self.at.packed.host_paths if self.at.packed else ()
        return {
            **({str(library): f"<python>/lib/{library.name}"} if library else {}),
            **{path: f"<host>/{Path(path).name}" for path in host},
            str(self.environment.root): "<environment>",
            str(self.bench.scratch / "suite"): "<suite>",
            str(self.bench.scratch): "<scratch>",
            str(self.at.cache): "<cache>",
            str(self.at.store.directory.absolute()): "<run>",
        }
