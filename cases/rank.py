"""One rank of a job: a process of its own that runs the suite's body and reports through a pipe."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.job import Job
    from cases.verdict import Check, Phase

PR_SET_PDEATHSIG = 1
HERE = str(Path(__file__).parent)
FAILED = 1


class Pipe:
    """Reports events as JSON lines. An event is also the sign of life that the supervisor listens for."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.current: Phase | None = None
        self.since = time.monotonic()

    def send(self, **event: Any) -> None:
        # No lone surrogates: what passes the line on (execnet, files, pages) is strict UTF-8.
        line = json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n"
        while line:
            line = line[os.write(self.descriptor, line) :]

    def phase(self, phase: Phase) -> None:
        """A phase begins; entering the same one again is a sign of life and adds to its time."""
        self.end_phase()
        self.current = phase
        self.send(phase=phase.value)

    def end_phase(self) -> None:
        now = time.monotonic()
        if self.current is not None:
            self.send(spent={f"{self.current.value}_s": round(now - self.since, 4)})
        self.since = now

    def checks(self, checks: list[Check]) -> None:
        self.send(checks=[asdict(check) for check in checks])

    def metric(self, name: str, value: float) -> None:
        self.send(metrics={name: value})

    def facts(self, facts: dict[str, Any]) -> None:
        self.send(facts=facts)

    def beat(self) -> None:
        self.send(beat=True)

    def error(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            message = str(error)
        except Exception as unspeakable:  # noqa: BLE001 - an error that cannot be shown is an error all the same
            message = f"no message: showing it raised {type(unspeakable).__name__}"
        self.send(error={"type": type(error).__name__, "message": message, "traceback": text, "ours": ours(error)})

    def done(self) -> None:
        self.end_phase()
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.send(metrics={"peak_rss_mib": round(peak_mib, 1)}, done=True)


def ours(error: BaseException) -> bool:
    """Whether the harness raised it, rather than the stack: no frame of the stack lies below ours.

    A failing import, and what a probe says by ``LackingError``, are facts about the stack although the line is ours.
    """
    if isinstance(error, (ImportError, MemoryError)) or type(error).__name__ == "LackingError":
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(HERE)


def live(job: Job, rank: int, pipe: int, body: Callable[[Pipe], None]) -> None:
    """Run ``body`` as this process's only purpose. Does not return.

    The interpreter is left by ``os._exit``: what an old library does at exit is not what a case is about.
    """
    own_group()
    say = Pipe(pipe)
    stack_file = redirect(Path(job.folder), rank)
    try:
        body(say)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        try:
            say.error(error)
            traceback.print_exc()
        finally:  # the pipe may be what was broken: a supervisor's stack lies above us
            leave(FAILED)
    say.done()
    stack_file.close()
    leave(0)


def leave(code: int) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def own_group() -> None:
    """A process group of its own, so that it can be ended with all it started; and it dies with its supervisor."""
    os.setpgid(0, 0)
    die_with_parent()
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Linux signals this process when its parent ends, whatever ended the parent (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)


def redirect(folder: Path, rank: int) -> Any:
    """Output goes to a log; Python stacks go to a file when the supervisor asks (SIGUSR1) or a signal ends us."""
    log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    stacks = (folder / f"rank-{rank}.stack").open("w")
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    return stacks


def waiting(path: str, poll_s: float = 0.01) -> Iterator[None]:
    """Yields while a companion computes the file.

    Raises:
        CompanionError: the companion failed; its error is the text.
    """
    beat = time.monotonic()
    while not Path(path).exists():
        failed = Path(f"{path}.error")
        if failed.exists():
            raise CompanionError(f"the reference could not be computed: {failed.read_text()}")
        time.sleep(poll_s)
        if time.monotonic() - beat > 1:
            beat = time.monotonic()
            yield


class CompanionError(Exception):
    """The reference could not be computed, so nothing can be said about the case."""
