"""One rank of a job: a process of its own that runs the suite's body and reports through a pipe."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
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

from cases.space.verdict import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.runtime.wire import Job
    from cases.space.verdict import Check

PR_SET_PDEATHSIG = 1
HERE = f"{Path(__file__).parents[1]}{os.sep}"
USERS = f"{HERE}api{os.sep}"  # calls: their lines stand for a user's, and Python blames the caller for a wrong keyword
FAILED = 1
LONGEST = 20_000  # characters of a message, and of the end of a traceback
STEPPED = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)  # their first time is told on its own as well
MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class Pipe:
    """Reports events as JSON lines. An event is also the sign of life that the supervisor listens for."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.current: Phase | None = None
        self.since = time.monotonic()
        self.is_observing = False
        self.apart: list[str] = []  # what takes time in a phase and is none of it, the innermost last
        self.entered: set[Phase] = set()
        self.is_first = False
        self.spent: dict[str, float] = collections.defaultdict(float)

    def send(self, **event: Any) -> None:
        # No lone surrogates: what passes the line on (execnet, files, pages) is strict UTF-8.
        line = json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n"
        while line:
            line = line[os.write(self.descriptor, line) :]

    def phase(self, phase: Phase) -> None:
        """A phase begins; entering the same one again is a sign of life and adds to its time."""
        self.end_phase()
        self.current = phase
        self.is_first = phase in STEPPED and phase not in self.entered
        self.entered.add(phase)
        self.send(phase=phase.value)

    def end_phase(self) -> None:
        self.count()
        if self.spent:
            self.send(spent={f"{part}_s": round(seconds, 4) for part, seconds in self.spent.items()})
            self.spent.clear()

    def count(self) -> None:
        """Add the time since this was last called to what it went into."""
        now = time.monotonic()
        took, self.since = now - self.since, now
        if self.apart:
            self.spent[self.apart[-1]] += took
        elif self.current is not None:
            self.spent[self.current.value] += took
            if self.is_first:
                self.spent[f"first_{self.current.value}"] += took

    @contextlib.contextmanager
    def spending(self, part: str) -> Iterator[None]:
        """Inside, time goes into this part of a cell's time, and not into the phase."""
        self.count()
        self.apart.append(part)
        try:
            yield
        finally:
            self.count()
            self.apart.pop()

    def checks(self, checks: list[Check]) -> None:
        self.send(checks=[asdict(check) for check in checks])

    def metric(self, name: str, value: float) -> None:
        self.send(metrics={name: value})

    def facts(self, facts: dict[str, Any]) -> None:
        self.send(facts=facts)

    def modules(self, names: Sequence[str]) -> None:
        """Report modules of the case code that this process imported."""
        self.send(modules=list(names))

    def beat(self) -> None:
        self.send(beat=True)

    def error(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            message = str(error)
        except Exception as unspeakable:  # noqa: BLE001 - an error that cannot be shown is an error all the same
            message = f"no message: showing it raised {type(unspeakable).__name__}"
        text = getattr(error, "log", text)  # of a script, its own output says more than where we noticed
        told = {"type": type(error).__name__, "message": message[:LONGEST], "traceback": text[-LONGEST:]}
        self.end_phase()
        self.send(error={**told, "ours": ours(error, observing=self.is_observing)})

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Inside, the harness looks and the stack does not work: what is raised is ours."""
        before, self.is_observing = self.is_observing, True
        with self.spending("judging"):
            yield
        self.is_observing = before  # after an error it stays: it says where the error came from

    def done(self) -> None:
        self.end_phase()
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.send(metrics={"peak_rss_mib": round(peak_mib, 1)}, done=True)


def ours(error: BaseException, *, observing: bool = False) -> bool:
    """Whether the harness or the machine is to blame, rather than the stack.

    Ours is what is raised while we observe, and what no frame of the stack lies below. A failing import, what is said
    by ``LackingError``, and a ``RuntimeError`` (torch raises it from C++, under our line) are facts about the stack,
    and so is whatever the lines of a call meet; a device or another rank may also fail late, while we look.
    """
    if isinstance(error, OSError) and error.errno in MACHINE:
        return True
    if isinstance(error, (ImportError, MemoryError, RuntimeError)) or type(error).__name__ == "LackingError":
        return False
    if observing:
        return True
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1].filename if frames else ""
    return last.startswith(HERE) and not last.startswith(USERS)


def live(job: Job, rank: int, pipe: int, body: Callable[[Pipe], None]) -> None:
    """Run ``body`` as this process's only purpose. Does not return.

    The interpreter is left by ``os._exit``: what an old library does at exit is not what a case is about.
    """
    say = Pipe(pipe)
    try:
        own_group()
        stack_file = redirect(Path(job.folder), rank)
        body(say)
        say.done()
        stack_file.close()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        try:
            say.error(error)
            traceback.print_exc()
        finally:  # the pipe may be what was broken: a supervisor's stack lies above us
            leave(FAILED)
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
