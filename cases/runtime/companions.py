"""Companions: processes that compute what several jobs share, such as a reference, while the ranks run."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cases.runtime import imported_modules, visible_gpus
from cases.runtime.process_tree import lead_group, leave
from cases.space import devices
from cases.space.verdict import UnknownModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.runtime.case_suite import CaseSuite

POLL_S = 0.02
WAIT_POLL_S = 0.01
BEAT_S = 1.0


class CompanionError(Exception):
    """A companion failed, so its reference does not exist and the case cannot be judged."""


@dataclass
class Companions:
    """The companions of one job, by pid, with the file that each one makes."""

    suite: CaseSuite
    device: str
    close_client: Callable[[], None]  # in the new process
    running: dict[int, str] = field(default_factory=dict)

    def start(self, path: str, compute: Callable[[], None]) -> None:
        """Start a companion, unless another job has done so: the job that creates the claim file computes."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(f"{path}.claim", os.O_CREAT | os.O_EXCL))
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                self.close_client()
                lead_group(parent)
                if devices.uses_gpus(self.device):
                    os.environ[visible_gpus.VISIBLE] = ""  # it computes on the CPU and has acquired no GPU
                leave(exit_code(self.suite, path, compute))
            self.running[pid] = path

    def reap(self) -> None:
        """Take note of companions that have ended. Jobs that wait for a missing file see its error."""
        for pid, path in list(self.running.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self.running[pid]
                note_missing(path)

    def wait(self, limit_s: float, cut_short: Callable[[], bool]) -> None:
        """Wait for the companions: other jobs may need them, so they end with the ranks only if they hang."""
        until = time.monotonic() + limit_s
        while self.running and time.monotonic() < until and not cut_short():
            self.reap()
            time.sleep(POLL_S)

    def note_ended(self) -> None:
        """Write errors for the companions that were still running at the end of the job."""
        for path in self.running.values():
            note_missing(path)


def exit_code(suite: CaseSuite, path: str, compute: Callable[[], None]) -> int:
    """Run a companion; returns its exit code and writes its error to a file next to the missing one."""
    try:
        imported_modules.record(imported_modules.note_in(imported_modules.file_beside(path)))
        suite.preload()
        compute()
    except BaseException as error:  # noqa: BLE001 - the jobs that wait have to see any error
        unfinished = Path(f"{path}.error.unfinished")
        unfinished.write_text(f"{type(error).__name__}: {error}")
        unfinished.rename(f"{path}.error")
        return 1
    return 0


def note_missing(path: str) -> None:
    """Write an error for a companion that ended without its file and without an error."""
    if not Path(path).exists() and not Path(f"{path}.error").exists():
        Path(f"{path}.error").write_text("the process that computes it was ended")


def wait_for(path: str, poll_s: float = WAIT_POLL_S) -> Iterator[None]:
    """Yield about once a second until a companion has made the file.

    Raises:
        CompanionError: the companion failed; the text has its error.
        UnknownModelError: the reference does not know the model, so the companion cannot compute it.
    """
    beat = time.monotonic()
    while not Path(path).exists():
        failed = Path(f"{path}.error")
        if failed.exists():
            error = failed.read_text()
            kind, _, message = error.partition(": ")
            if kind == UnknownModelError.__name__:
                raise UnknownModelError(message)
            raise CompanionError(f"the reference could not be computed: {error}")
        time.sleep(poll_s)
        if time.monotonic() - beat > BEAT_S:
            beat = time.monotonic()
            yield
