"""Runs the cell in candidate environments, several at once, and keeps every outcome in the run directory."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Phase, Verdict
from matrix.environments import disk, leases, unpacked
from matrix.environments.environment import Environment, site_packages
from matrix.environments.linked_environment import InstalledPackage, installed_packages, link
from matrix.evidence import Evidence
from matrix.keys import EnvironmentKey
from matrix.run import evidence_files, pipeline
from matrix.run.execute import Bench
from matrix.run.outcome_builder import OutcomeBuilder, blank
from matrix.run.scripts import script_cells
from matrix.run.store import WORK
from matrix.versions.backends import in_torch_family
from matrix.versions.locks import Lock, distribution, same_version, statements

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cases.space.case import Case
    from matrix.bisect.candidate import MixedEnvironment
    from matrix.run.context import RunContext
    from matrix.run.outcome import Outcome
    from matrix.run.scripts.script_cells import ScriptPackages

ATTEMPTS: Final = 2  # a lost cell is run once more
FOLDER: Final = "bisect"  # in the cache


@dataclass(kw_only=True)
class CandidateRunner:
    """Runs one case in candidates.

    Attributes:
        ctx: the run that keeps the outcomes.
        case: the case.
        ends: the installed environments that candidates link to.
        width: the number of candidates that run at once.
        is_failure: whether a red outcome ends the repeats of a candidate.
        cells_run: the number of cells that this process ran.
    """

    ctx: RunContext
    case: Case
    ends: Sequence[Environment]
    width: int = 1
    is_failure: Callable[[Outcome], bool] = lambda outcome: outcome.verdict in RED
    cells_run: int = 0
    folders: set[Path] = field(default_factory=set)  # of single packages that this search uses

    @property
    def packages_folder(self) -> Path:
        """The folder of the cache with single packages."""
        return self.ctx.cache / FOLDER

    def measure(self, candidates: Sequence[MixedEnvironment], repeats: int) -> dict[str, tuple[Outcome, ...]]:
        """The outcomes of each candidate by its name, with as many repeats unless one is red or cannot run."""
        waiting = {each.key: each for each in candidates}
        while waiting:
            unfinished = [each for each in waiting.values() if not self.is_finished(each, repeats)]
            self.run_once(unfinished)
            waiting = {each.key: each for each in unfinished if not self.is_finished(each, repeats)}
        return {each.key: self.known(each) for each in candidates}

    def measure_ends(self, candidates: Sequence[MixedEnvironment], runs: int) -> dict[str, tuple[Outcome, ...]]:
        """The outcomes of candidates with exactly so many runs, whatever they show."""
        while unfinished := [each for each in candidates if len(self.known(each)) < runs]:
            self.run_once(unfinished)
        return {each.key: self.known(each) for each in candidates}

    def is_finished(self, candidate: MixedEnvironment, repeats: int) -> bool:
        """Return whether more runs would not change the state."""
        known = self.known(candidate)
        settled = any(self.is_failure(each) or each.verdict is not Verdict.PASS for each in known)
        return len(known) >= repeats or settled

    def known(self, candidate: MixedEnvironment) -> tuple[Outcome, ...]:
        """The stored outcomes of a candidate, of this case code and hardware."""
        lock = self.environment_key(candidate)
        ctx = self.ctx
        return tuple(
            each
            for each in ctx.store.outcomes
            if (each.set, each.case, each.lock, each.hardware) == (candidate.key, self.case.id, lock, ctx.hardware)
            and ctx.suite.is_current(each)
        )

    def environment_key(self, candidate: MixedEnvironment) -> str:
        return str(EnvironmentKey(candidate.digest, self.ctx.backend.name)) if candidate.digest else ""

    def run_once(self, candidates: Sequence[MixedEnvironment]) -> None:
        """Run the cell once in each candidate; an interruption keeps what ended before it."""
        for each in candidates:
            record = pipeline.set_record(each.version_set, lock=each.digest, backend=self.ctx.backend.name)
            self.ctx.store.note(record)
        if len(candidates) == 1 or self.width == 1:  # in this thread, which Ctrl-C interrupts at once
            for each in candidates:
                self.keep(self.outcome(each, self.prepared(each)))
            return
        pool = ThreadPoolExecutor(self.width)
        waiting = {pool.submit(self.outcome, each, self.prepared(each)) for each in candidates}
        try:
            for future in as_completed([*waiting]):
                waiting.discard(future)
                self.keep(future.result())
        finally:  # after Ctrl-C, running cells end and are kept
            pool.shutdown(cancel_futures=True)
            for future in waiting:
                if not future.cancelled() and future.exception() is None:
                    self.keep(future.result())

    def keep(self, outcome: Outcome) -> None:
        self.ctx.store.append(outcome)
        self.cells_run += outcome.verdict is not Verdict.BLOCKED

    def prepared(self, candidate: MixedEnvironment) -> Environment | Evidence:
        """The environment of a candidate, which links to installed packages, or evidence why there is none."""
        if isinstance(candidate.lock, Evidence):
            return candidate.lock
        if candidate.installed is not None:
            return next(each for each in self.ends if each.root == candidate.installed)
        packages = self.packages(candidate)
        if isinstance(packages, Evidence):
            return packages
        root = self.new_folder("environment-")
        like = self.ends[0]
        link(root, packages, like=like.root)
        return Environment(
            key=candidate.key,
            lock=candidate.lock.digest,
            backend=like.backend,
            root=root,
            installed={each.name: each.version for each in packages},
            lease=leases.acquire_shared(root / ".lock"),
        )

    def packages(self, candidate: MixedEnvironment) -> list[InstalledPackage] | Evidence:
        """Where the packages of a candidate are installed, or evidence why one cannot be."""
        found: list[InstalledPackage] = []
        for line in statements(candidate.lock.text) if isinstance(candidate.lock, Lock) else ():
            package = self.package(line, candidate)
            if isinstance(package, Evidence):
                return package
            found += [package] if package is not None else []
        return found

    def package(self, statement: str, candidate: MixedEnvironment) -> InstalledPackage | Evidence | None:
        """Where a package of a lock is installed; None for a library that another build of torch lacks."""
        name = distribution(statement)
        version = statement.split(maxsplit=1)[0].partition("==")[2]
        if name in candidate.built:
            return installed_packages(candidate.built[name])[name]
        for end in self.ends:
            found = installed_packages(site_packages(end.root)).get(name)
            if found is not None and same_version(found.version, version):
                return found
        if name != "torch" and in_torch_family(name) and not self.ctx.backend.locked:
            return None
        folder = unpacked.unpack(
            statement,
            root=self.ends[0].root,
            python=candidate.version_set.python,
            parent=self.packages_folder,
            uv=self.ctx.uv,
            make_room=self.make_room,
        )
        if isinstance(folder, Evidence):
            return folder
        self.folders.add(folder)
        return installed_packages(folder)[name]

    def make_room(self) -> None:
        ctx = self.ctx
        disk.keep_free(ctx.cache, uv=ctx.uv, budget_bytes=ctx.keep_free_bytes, say=ctx.say)

    def outcome(self, candidate: MixedEnvironment, environment: Environment | Evidence) -> Outcome:
        """Run the cell; a lost one once more."""
        repeat = len(self.known(candidate)) + 1
        if isinstance(environment, Evidence):
            return self.blocked(candidate, environment, repeat)
        try:
            packages = self.script_packages(candidate, environment)
            if isinstance(packages, Evidence):
                return self.blocked(candidate, packages, repeat)
            outcome = self.attempt(candidate, environment, packages, repeat, 1)
            for attempt in range(2, ATTEMPTS + 1):
                if outcome.verdict is Verdict.LOST:
                    outcome = self.attempt(candidate, environment, packages, repeat, attempt)
            return outcome
        finally:
            if candidate.installed is None:
                environment.release()
                shutil.rmtree(environment.root, ignore_errors=True)

    def script_packages(self, candidate: MixedEnvironment, environment: Environment) -> ScriptPackages | Evidence:
        """What the user's script needs besides a candidate, or evidence why it cannot run there."""
        ctx, lock = self.ctx, candidate.lock
        if isinstance(lock, Evidence):
            return lock
        if unmet := script_cells.why_unmet(ctx.suite.scripts, self.case, lock):
            return Evidence(phase=Phase.RESOLVE, reason=unmet)
        found = script_cells.prepare(ctx.suite.scripts, [self.case], environment, lock=lock, cache=ctx.cache, uv=ctx.uv)
        return found.refused.get(self.case.options.call, found) if found.refuses(self.case) else found

    def attempt(
        self,
        candidate: MixedEnvironment,
        environment: Environment,
        packages: ScriptPackages,
        repeat: int,
        attempt: int,
    ) -> Outcome:
        ctx = self.ctx
        scratch = self.new_folder("cell-")
        bench = Bench(
            scratch=scratch,
            device=ctx.device,
            workers=1,
            suite=ctx.suite,
            limits=ctx.limits,
            more={**ctx.variables, **packages.variables},
        )
        builder = OutcomeBuilder(
            version_set=candidate.version_set,
            case=self.case,
            environment=environment,
            bench=bench,
            attempt=attempt,
            repeat=repeat,
            ctx=ctx,
            packages=packages,
        )
        reports = [report for report in bench.run([self.case.id], environment) if report.name == self.case.id]
        outcome = builder.outcome(reports[-1]) if reports else builder.unreported()
        shutil.rmtree(scratch, ignore_errors=True)
        return outcome.model_copy(update={"lock": self.environment_key(candidate)})

    def blocked(self, candidate: MixedEnvironment, why: Evidence, repeat: int) -> Outcome:
        places = {str(self.ctx.cache): "<cache>", str(self.ctx.store.directory.absolute()): "<run>"}
        known = blank(candidate.version_set, self.case, self.environment_key(candidate), self.ctx)
        reason = evidence_files.scrubbed(why.reason, places)
        return known.model_copy(
            update={"verdict": Verdict.BLOCKED, "phase": why.phase, "reason": reason, "repeat": repeat}
        )

    def new_folder(self, prefix: str) -> Path:
        parent = self.ctx.store.directory.absolute() / WORK
        parent.mkdir(exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))

    def clean_up(self) -> None:
        """Remove the folders of single packages and what is left of candidates."""
        unpacked.remove(self.folders, parent=self.packages_folder)
        shutil.rmtree(self.ctx.store.directory / WORK, ignore_errors=True)
