"""Builds the outcome of a cell from the report of its environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases.runtime.wire import CellReport, ErrorReport
from cases.space.verdict import Verdict
from matrix.keys import CellKey, EnvironmentKey
from matrix.run import code_digest, evidence_files
from matrix.run.code_digest import NO_CODE
from matrix.run.outcome import CheckRecord, ErrorRecord, Outcome
from matrix.run.scripts import script_cells
from matrix.run.scripts.script_cells import ScriptPackages

if TYPE_CHECKING:
    from cases.space.case import Case
    from matrix.environments.environment import Environment
    from matrix.run.context import RunContext
    from matrix.run.execute import Bench
    from matrix.versions.sets import VersionSet

LOG_TAIL: Final = 2000


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
    packages: ScriptPackages = field(default_factory=ScriptPackages)

    def outcome(self, report: CellReport) -> Outcome:
        if script_cells.is_script(self.case):
            report = script_cells.of_ranks(report, self.bench.job_folder(self.case.id))
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
                "series": dict(report.series),
                "facts": {**report.every_fact, **self.packages.facts(self.case)},
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
