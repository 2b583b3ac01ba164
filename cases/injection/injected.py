"""What suites that plant something have in common: each of their cases is one of the suite, with something in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from cases import suite
from cases.injection.faults import Ground

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.runtime.wire import Job
    from cases.space.options import Options


class Planted(Protocol):
    """A case; ``clean`` is its id in the suite."""

    @property
    def clean(self) -> str: ...

    @property
    def options(self) -> Options: ...

    def plant(self, at: Ground) -> None:
        """Change the rank that this is called in, or leave it as it is."""


@dataclass(frozen=True)
class Planting:
    """A suite's answers to jobs, but for what is planted."""

    cases: Mapping[str, Planted]

    def clean(self, job: Job) -> Job:
        """The job as the suite knows it."""
        return replace(job, name=self.cases[job.name].clean) if job.kind == "cell" else job

    def companions(self, job: Job) -> dict[str, Callable[[], None]]:
        return suite.companions(self.clean(job))

    def acts(self, job: Job) -> list[tuple[int, int]]:
        return suite.acts(self.clean(job))

    def run(self, job: Job, rank: int, act: int, companion: Callable[[str], Iterator[None]], say: Any) -> None:
        if job.kind == "cell":
            case = self.cases[job.name]
            case.plant(Ground(rank, act, case.options))
        suite.run(self.clean(job), rank, act, companion, say)
