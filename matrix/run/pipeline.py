"""Runs the cells set by set: resolves the set, installs it, runs its cells, and stores their outcomes."""

from __future__ import annotations

import shutil
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.runtime.gpu_pool import LACKING
from cases.space.verdict import Verdict
from matrix.environments import disk, provision
from matrix.evidence import Evidence
from matrix.keys import CellKey, EnvironmentKey
from matrix.run import evidence_files, fit, timings
from matrix.run.execute import Bench
from matrix.run.outcome import Outcome, SetRecord
from matrix.run.outcome_builder import OutcomeBuilder, blank
from matrix.run.scripts import script_cells
from matrix.run.store import WORK
from matrix.versions import locking, locks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cases.space.case import Case
    from matrix.environments.environment import Environment
    from matrix.run.context import RunContext
    from matrix.run.fit import Fit
    from matrix.run.scripts.script_cells import ScriptPackages
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet

LOCKS: Final = "locks"  # folder of a run, for the locks of packed and of derived sets
ATTEMPTS: Final = 2  # a lost cell is run once more


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
    fitting = fit.Fit()
    if isinstance(prepared, locks.Lock):
        fitting = fit.check_gpus(prepared, ctx.backend.name, ctx.pool, ctx.device)
    for repeat in range(1, ctx.repeats + 1):
        missing = unfinished(version_set, cases, lock, repeat, ctx)
        if isinstance(prepared, Evidence):
            block(version_set, missing, prepared, lock, repeat, ctx)
            break
        runnable = [case for case in missing if not skip_if_blocked(prepared, case, lock, repeat, fitting, ctx)]
        if runnable:
            install_and_run(version_set, runnable, prepared, repeat, ctx)
    ctx.watcher.set_done(version_set.key)
    new = ctx.store.outcomes[known:]
    if new and not ctx.variables:  # with further variables, ranks do more or other work than usual
        timings.note(ctx.cache, ctx.device, new, wall_s=time.monotonic() - began, workers=ctx.workers)


def prepare(version_set: VersionSet, ctx: RunContext) -> locks.Lock | Evidence:
    ctx.watcher.stage(version_set.key, "resolving")
    lock = lock_of(version_set, ctx)
    if ctx.packed is not None and isinstance(lock, locks.Lock):  # the packaged locks do not have it
        locks.write(lock, folder=ctx.store.directory / LOCKS)
    return lock


def lock_of(version_set: VersionSet, ctx: RunContext) -> locks.Lock | Evidence:
    """Return the packed lock of a set, or else its stored or newly resolved one."""
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
        packages = script_cells.prepare(ctx.suite.scripts, cases, environment, lock=lock, cache=ctx.cache, uv=ctx.uv)
        refused = [case for case in cases if packages.refuses(case)]
        for case in refused:
            lock_key = str(EnvironmentKey(lock.digest, ctx.backend.name))
            block_cells(version_set, [case], packages.refused[case.options.call], lock_key, repeat, ctx)
        ctx.watcher.stage(version_set.key, "starting")
        ready = [case for case in cases if case not in refused]
        if ready:
            run_cells(version_set, ready, environment, repeat, ctx, packages)
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


def skip_if_blocked(prepared: locks.Lock, case: Case, lock: str, repeat: int, fitting: Fit, ctx: RunContext) -> bool:
    """Store a case that this machine or version cannot run as skipped; return whether it was stored."""
    shortage = fitting.shortage(case.ranks)
    reason = shortage or why_not(case, ctx) or script_cells.why_unmet(ctx.suite.scripts, case, prepared)
    if not reason:
        return False
    known = blank(prepared.version_set, case, lock, ctx)
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
    reason = block_cells(version_set, cases, why, lock, repeat, ctx)
    ctx.store.note(set_record(version_set, lock=lock, blocked=f"{why.phase.value}: {reason}"))


def block_cells(
    version_set: VersionSet, cases: Sequence[Case], why: Evidence, lock: str, repeat: int, ctx: RunContext
) -> str:
    """Store cells as blocked; return the reason without paths of this machine."""
    places = {str(ctx.cache): "<cache>", str(ctx.store.directory.absolute()): "<run>"}
    reason = evidence_files.scrubbed(why.reason, places)
    for case in cases:
        outcome = blank(version_set, case, lock, ctx).model_copy(
            update={"verdict": Verdict.BLOCKED, "phase": why.phase, "reason": reason, "repeat": repeat}
        )
        finish(outcome, ctx)
    return reason


def run_cells(
    version_set: VersionSet,
    cases: Sequence[Case],
    environment: Environment,
    repeat: int,
    ctx: RunContext,
    packages: ScriptPackages,
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
            more={**ctx.variables, **packages.variables},
        )
        sources = {case.id: str(carried(ctx, case.source, case.begun)) for case in waiting.values() if case.source}
        # A script starts its own processes, so a cold start would only run it again.
        chosen = sample(version_set, [name for name, case in waiting.items() if not script_cells.is_script(case)], ctx)
        for report in bench.run(starting_order(waiting, ctx), environment, cold_sample=chosen, sources=sources):
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
                packages=packages,
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


def starting_order(cases: Mapping[str, Case], ctx: RunContext) -> list[str]:
    """Cells with most ranks first, so that none of them is the last to run beside idle workers."""
    return list(cases) if ctx.suite.in_order else sorted(cases, key=lambda name: -cases[name].ranks)


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
        facts=dict(version_set.replaced),
    )
