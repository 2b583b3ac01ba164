"""The ordinary suite, whose ranks record what goes into their modules and what comes out (``module_traces``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.checks import module_traces
from cases.suite import LibrarySuite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.runtime.wire import Job


class TracedSuite(LibrarySuite):
    def run(self, job: Job, rank: int, stage: int, companion: Callable[[str], Iterator[None]], reporter: Any) -> None:
        if job.kind != "cell":
            super().run(job, rank, stage, companion, reporter)
            return
        with module_traces.recorded(Path(job.folder), stage, rank):
            super().run(job, rank, stage, companion, reporter)


SUITE = TracedSuite()
