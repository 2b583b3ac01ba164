"""The suite of ``ftmatrix mutate``: any case of the ordinary suite, with a mutant of the stack in all of its ranks."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases import suite
from cases.injection import numbers, source_mutants
from cases.injection.injected import InjectionSuite
from cases.space.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.injection.patching import InjectionPoint
    from cases.runtime.wire import Job

MUTANTS = "FTMATRIX_MUTANTS"  # names the file of the mutants, one JSON object on each line
INFIX = "-with-mutant-"
NONE = "none"  # the name that leaves the stack unchanged


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

    def inject(self, _point: InjectionPoint) -> None:
        if self.mutant != NONE:
            source_mutants.activate(source_mutants.read(Path(os.environ[MUTANTS]), self.mutant))


def mutated_case(case: Case, mutant: str) -> MutatedCase:
    return MutatedCase(case.group, case.why, case.options, case.source, mutant=mutant)


class MutatedCases(dict[str, MutatedCase]):
    """Cases by id. Any case of the ordinary suite may run with any mutant."""

    def __missing__(self, name: str) -> MutatedCase:
        clean, _, mutant = name.rpartition(INFIX)
        if clean not in suite.CASES:
            raise KeyError(name)
        return mutated_case(suite.CASES[clean], mutant)


class MutantSuite(InjectionSuite):
    """Keeps what a mutated rank saves apart from what other cells read, and reports digests of the numbers."""

    def companions(self, job: Job) -> dict[str, Callable[[], None]]:
        return super().companions(own_cache(job))

    def run(self, job: Job, rank: int, stage: int, companion: Callable[[str], Iterator[None]], reporter: Any) -> None:
        with numbers.reported(reporter, rank, stage):
            super().run(own_cache(job), rank, stage, companion, reporter)


def own_cache(job: Job) -> Job:
    """The job with a cache of its own if the stack writes to it, as it does for a prequantised checkpoint."""
    if job.kind != "cell" or not job.options.get("prequantised"):
        return job
    cache = Path(job.folder) / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    return replace(job, cache=str(cache))


SUITE = MutantSuite(MutatedCases())
