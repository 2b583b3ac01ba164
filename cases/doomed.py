"""The suite with disasters planted, and healthy cells that come after them (``ftmatrix selfcheck --disasters``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cases import suite
from cases.case import Case
from cases.disasters import DISASTERS
from cases.faults import Ground

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.job import Job

preload, impure, needed, allowed = suite.preload, suite.impure, suite.needed, suite.allowed
PROFILES = suite.PROFILES
BETWEEN = {True: "-with-", False: "-after-"}


@dataclass(frozen=True)
class Doomed(Case):
    """A case with a disaster in it, or one that is run ``after`` a disaster and has none."""

    disaster: str = ""
    struck: bool = True

    @property
    def id(self) -> str:
        return f"{self.clean}{BETWEEN[self.struck]}{self.disaster}"

    @property
    def clean(self) -> str:
        return super().id


def doomed(clean: str, disaster: str, *, struck: bool) -> Doomed:
    case = suite.CASES[clean]
    return Doomed(case.group, DISASTERS[disaster].what, case.options, disaster=disaster, struck=struck)


class Cases(dict[str, Doomed]):
    """Cases by id. Any case of the suite may come after any disaster."""

    def __missing__(self, name: str) -> Doomed:
        clean, _, disaster = name.rpartition(BETWEEN[False])
        if clean not in suite.CASES or disaster not in DISASTERS:
            raise KeyError(name)
        return doomed(clean, disaster, struck=False)


CASES = Cases(
    {
        each.id: each
        for disaster in DISASTERS.values()
        for each in (doomed(case, disaster.name, struck=True) for case in disaster.cases)
    }
)


def clean(job: Job) -> Job:
    """The job as the suite knows it."""
    return replace(job, name=CASES[job.name].clean) if job.kind == "cell" else job


def companions(job: Job) -> dict[str, Callable[[], None]]:
    return suite.companions(clean(job))


def acts(job: Job) -> list[tuple[int, int]]:
    return suite.acts(clean(job))


def run(job: Job, rank: int, act: int, companion: Callable[[str], Iterator[None]], say: Any) -> None:
    if job.kind == "cell" and CASES[job.name].struck:
        case = CASES[job.name]
        DISASTERS[case.disaster].plant(Ground(rank, act, case.options))
    suite.run(clean(job), rank, act, companion, say)
