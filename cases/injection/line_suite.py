"""The suite that records which lines of the stack the ranks of each case execute, for ``ftmatrix mutate``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.injection.executed_lines import LineRecorder, recorded_file
from cases.suite import LibrarySuite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.runtime.wire import Job

LINES = "FTMATRIX_LINES"  # names the folder that ranks write their executed lines to


class LineSuite(LibrarySuite):
    """The ordinary suite, traced."""

    def run(self, job: Job, rank: int, stage: int, companion: Callable[[str], Iterator[None]], reporter: Any) -> None:
        if job.kind != "cell":
            super().run(job, rank, stage, companion, reporter)
            return
        recorder = LineRecorder()
        with recorder.recording():
            super().run(job, rank, stage, companion, reporter)
        recorder.write(recorded_file(Path(os.environ[LINES]), job.name, stage, rank))


SUITE = LineSuite()
