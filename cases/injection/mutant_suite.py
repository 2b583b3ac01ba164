"""The suite of ``ftmatrix mutate``: any case of the ordinary suite, with a mutant of the stack in all of its ranks."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import suite
from cases.checks import module_traces
from cases.checks.function_traces import FunctionRecorder
from cases.checks.state_digests import OF_TORCH, STACK
from cases.injection import mutated_modules, numbers, source_mutants
from cases.injection.injected import InjectionSuite
from cases.runtime import deviations
from cases.space.case import Case
from cases.space.verdict import RED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FunctionType

    from cases.runtime.wire import CellReport, Job

MUTANTS = "FTMATRIX_MUTANTS"  # names the file of the mutants, one JSON object on each line
INFIX = "-with-mutant-"
NONE = "none"  # the name that leaves the stack unchanged
NOTICED = "another cell noticed the mutant"
VALUES = "values"  # of ``module_traces.REQUESTED``: also of those parts of torch that mutants change


@dataclass(frozen=True)
class MutatedCase(Case):
    """A case on a mutated stack."""

    mutant: str = ""

    @property
    def id(self) -> str:
        return f"{self.clean}{INFIX}{self.mutant}"

    @property
    def clean(self) -> str:
        return super().id

    def activate(self) -> list[FunctionType]:
        """Change the stack of this process; return the functions that changed."""
        if self.mutant == NONE:
            return []
        return source_mutants.activate(source_mutants.read(Path(os.environ[MUTANTS]), self.mutant))


def mutated_case(case: Case, mutant: str) -> MutatedCase:
    return MutatedCase(case.group, case.why, case.options, case.source, mutant=mutant)


def unchanged(case: Case) -> Case:
    """The same case on the unchanged stack."""
    return mutated_case(case, NONE)


class MutatedCases(dict[str, MutatedCase]):
    """Cases by id. Any case of the ordinary suite may run with any mutant."""

    def __missing__(self, name: str) -> MutatedCase:
        clean, _, mutant = name.rpartition(INFIX)
        if clean not in suite.CASES:
            raise KeyError(name)
        return mutated_case(suite.CASES[clean], mutant)


class MutantSuite(InjectionSuite):
    """Keeps what a mutated rank saves apart from what other cells read, and reports digests of the numbers.

    A mutant that one cell notices needs no other cell.
    """

    def why_settled(self, name: str, session: Path) -> str:
        return NOTICED if mark(session, self.cases[name].mutant).exists() else ""

    def note(self, report: CellReport, session: Path) -> None:
        mutant = self.cases[report.name].mutant
        if report.verdict in RED and mutant != NONE:
            mark(session, mutant).touch()

    def companions(self, job: Job) -> dict[str, Callable[[], None]]:
        return super().companions(own_cache(job))

    def run(self, job: Job, rank: int, stage: int, companion: Callable[[str], Iterator[None]], reporter: Any) -> None:
        changed = self.cases[job.name].activate() if job.kind == "cell" else []
        watched = [each.__code__ for each in changed] if is_watched() else []
        is_traced = job.kind == "cell" and module_traces.REQUESTED in os.environ
        traced = traces(job, rank, stage) if is_traced else contextlib.nullcontext()
        with numbers.reported(reporter, rank, stage), mutated_modules.reported(reporter, rank, stage, watched), traced:
            suite.SUITE.run(self.clean(own_cache(job)), rank, stage, companion, reporter)


def traces(job: Job, rank: int, stage: int) -> contextlib.AbstractContextManager[None]:
    roots = (*STACK, *OF_TORCH) if os.environ[module_traces.REQUESTED] == VALUES else STACK
    return module_traces.recorded(Path(job.folder), stage, rank, FunctionRecorder(roots))


def is_watched() -> bool:
    """Return whether to watch where mutated code runs; a run that only locates a red cell need not do so again."""
    is_again = module_traces.REQUESTED in os.environ or deviations.REQUESTED in os.environ
    return mutated_modules.REQUESTED in os.environ and not is_again


def mark(session: Path, mutant: str) -> Path:
    """The file that says that a cell noticed a mutant."""
    return session / f"noticed-{mutant}"


def own_cache(job: Job) -> Job:
    """The job with a cache of its own if the stack writes to it, as it does for a prequantised checkpoint."""
    if job.kind != "cell" or not job.options.get("prequantised"):
        return job
    cache = Path(job.folder) / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    return replace(job, cache=str(cache))


SUITE = MutantSuite(MutatedCases())
