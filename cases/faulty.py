"""The suite with faults planted: every cell should be red. It shows what the checks catch (``ftmatrix selfcheck``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cases import suite
from cases.case import Case
from cases.faults import FAULTS, Ground

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.job import Job

preload, impure, needed, allowed = suite.preload, suite.impure, suite.needed, suite.allowed


@dataclass(frozen=True)
class Planted(Case):
    """A case with a fault in it."""

    fault: str = ""

    @property
    def id(self) -> str:
        return f"{self.clean}-with-{self.fault}"

    @property
    def clean(self) -> str:
        return super().id


def planted(case: Case, fault: str) -> Planted:
    return Planted(case.group, FAULTS[fault].what, case.options, fault=fault)


CASES: dict[str, Planted] = {
    each.id: each
    for fault in FAULTS.values()
    for each in (planted(suite.CASES[case], fault.name) for case in fault.cases)
}


def clean(job: Job) -> Job:
    """The job without its fault."""
    return replace(job, name=CASES[job.name].clean) if job.kind == "cell" else job


def companions(job: Job) -> dict[str, Callable[[], None]]:
    return suite.companions(clean(job))


def acts(job: Job) -> list[tuple[int, int]]:
    return suite.acts(clean(job))


def run(job: Job, rank: int, act: int, companion: Callable[[str], Iterator[None]], say: Any) -> None:
    if job.kind == "cell":
        case = CASES[job.name]
        FAULTS[case.fault].plant(Ground(rank, act, case.options))
    suite.run(clean(job), rank, act, companion, say)
