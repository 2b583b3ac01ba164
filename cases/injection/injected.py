"""The common base of the suites that inject faults or crashes into cases of the ordinary suite."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from cases.injection.patching import InjectionPoint
from cases.suite import SUITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cases.runtime.silence import SilenceTimeout
    from cases.runtime.wire import CellReport, Job
    from cases.space.options import Options


class InjectedCase(Protocol):
    """A case with an injection; ``clean`` is the id of the unchanged case in the ordinary suite."""

    @property
    def clean(self) -> str: ...

    @property
    def options(self) -> Options: ...

    def inject(self, point: InjectionPoint) -> None:
        """Change the calling rank, or leave it unchanged."""


@dataclass(frozen=True)
class InjectionSuite:
    """A suite that changes a rank and then runs the clean case in it."""

    cases: Any  # InjectedCase by id
    profiles: Mapping[str, Any] = field(default_factory=dict)

    def preload(self, *, to_fork: bool = False) -> None:
        SUITE.preload(to_fork=to_fork)

    def why_unforkable(self) -> str:
        return SUITE.why_unforkable()

    def requirements(self, name: str, device: str) -> Any:
        return SUITE.requirements(self.case(name).clean, device)

    def why_settled(self, name: str, session: Path) -> str:  # noqa: ARG002 - the protocol's
        """No injected cell answers for another, unless a suite says so."""
        return ""

    def note(self, report: CellReport, session: Path) -> None:
        """Nothing: see ``why_settled``."""

    def silence_timeout(self, name: str, device: str) -> SilenceTimeout:
        return SUITE.silence_timeout(self.case(name).clean, device)

    def companions(self, job: Job) -> dict[str, Callable[[], None]]:
        return SUITE.companions(self.clean(job))

    def stages(self, job: Job) -> list[tuple[int, int]]:
        return SUITE.stages(self.clean(job))

    def run(self, job: Job, rank: int, stage: int, companion: Callable[[str], Iterator[None]], reporter: Any) -> None:
        if job.kind == "cell":
            case = self.case(job.name)
            case.inject(InjectionPoint(rank, stage, case.options))
        SUITE.run(self.clean(job), rank, stage, companion, reporter)

    def case(self, name: str) -> InjectedCase:
        found: InjectedCase = self.cases[name]
        return found

    def clean(self, job: Job) -> Job:
        """The same job for the clean case of the ordinary suite."""
        return replace(job, name=self.case(job.name).clean) if job.kind == "cell" else job
