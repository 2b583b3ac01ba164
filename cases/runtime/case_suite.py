"""The protocol of a suite of cases, as the test session, the fork server and the ranks use it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from cases.runtime.silence import SilenceTimeout
    from cases.runtime.wire import CellReport, Job
    from cases.space.verdict import Check, Phase


class Reporter(Protocol):
    """Reports the progress of a rank. Every report also proves that the rank is alive."""

    def phase(self, phase: Phase) -> None:
        """Begin or resume a phase."""

    def checks(self, checks: list[Check]) -> None: ...

    def metric(self, name: str, value: float) -> None: ...

    def series(self, series: Mapping[str, tuple[float, ...]]) -> None:
        """Report values of each step by name; a later report replaces it."""

    def facts(self, facts: dict[str, Any]) -> None: ...

    def modules(self, names: Sequence[str]) -> None:
        """Report modules of the case code that this process imported."""

    def beat(self) -> None:
        """Prove that the rank is alive, and nothing else."""

    def observing(self) -> AbstractContextManager[None]:
        """Mark code that only inspects results: an exception inside is the harness's fault, not the stack's."""


class ProbedRequirement(Protocol):
    """A requirement of a case on the version or the machine. The probe of the same name tests it."""

    @property
    def name(self) -> str: ...

    @property
    def because(self) -> str:
        """The start of the sentence that explains a skip."""

    @property
    def ranks(self) -> int: ...


class CaseSuite(Protocol):
    """A set of cases and the way a rank runs one of them. A suite's module assigns it to ``SUITE``."""

    @property
    def cases(self) -> dict[str, Any]:
        """Declared cases by id; each has ``id``, ``group``, ``why``, ``options``, ``source`` and ``ranks``."""

    @property
    def profiles(self) -> Mapping[str, Any]:
        """Profiles by name; a suite may have none."""

    def preload(self, *, to_fork: bool = False) -> None:
        """Import the stack; with ``to_fork``, without initialising CUDA where that can be avoided.

        Raises:
            Exception: whatever importing the stack raises.
        """

    def why_unforkable(self) -> str:
        """The reason why ranks must not be forked from this process after ``preload``; empty if they may."""

    def requirements(self, name: str, device: str) -> Sequence[ProbedRequirement]:
        """The requirements of a case on a device."""

    def why_settled(self, name: str, session: Path) -> str:
        """The reason why a cell need not run, if reports of others left one in the session's folder; else empty."""

    def note(self, report: CellReport, session: Path) -> None:
        """Leave in the session's folder what spares other cells, if the report of a cell does."""

    def silence_timeout(self, name: str, device: str) -> SilenceTimeout:
        """The time that a rank of a case may pass without a report."""

    def companions(self, job: Job) -> Mapping[str, Callable[[], None]]:
        """Functions to run in processes of their own while the ranks run, by the file that each one makes."""

    def stages(self, job: Job) -> Sequence[tuple[int, int]]:
        """The stages of a job, each in fresh ranks: the stage's number and how many ranks it has."""

    def run(
        self, job: Job, rank: int, stage: int, companion: Callable[[str], Iterator[None]], reporter: Reporter
    ) -> None:
        """Run one rank of one stage. ``companion`` yields until the file of a companion exists."""


def load(module: str) -> CaseSuite:
    """The suite that a module holds.

    Raises:
        AttributeError: the module has no ``SUITE``.
    """
    suite: CaseSuite = importlib.import_module(module).SUITE
    return suite
