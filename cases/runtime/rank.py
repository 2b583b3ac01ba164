"""One rank of a job: a process that runs the suite's body and reports through a pipe."""

from __future__ import annotations

import collections
import contextlib
import errno
import faulthandler
import os
import resource
import signal
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.runtime.process_tree import lead_group, leave
from cases.runtime.wire import ErrorReport, Event
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cases.runtime.wire import Job
    from cases.space.verdict import Check

HARNESS = f"{Path(__file__).parents[1]}{os.sep}"
# Lines of calls stand for a user's, and Python blames the caller for a wrong keyword.
CALLS = tuple(f"{HARNESS}{room}{os.sep}" for room in ("api", "behaviour"))
FAILED = 1
LONGEST = 20_000  # characters of a message, and of the end of a traceback
STEPPED = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)  # the first time of each is also a metric
MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


class PipeReporter:
    """Writes events to a pipe. Each event also proves to the supervisor that the rank is alive."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.current: Phase | None = None
        self.since = time.monotonic()
        self.is_observing = False
        self.nested: list[str] = []  # parts that take time within a phase and do not count for it; innermost last
        self.entered: set[Phase] = set()
        self.is_first = False
        self.spent: dict[str, float] = collections.defaultdict(float)

    def send(self, event: Event) -> None:
        line = event.to_line()
        while line:
            line = line[os.write(self.descriptor, line) :]

    def phase(self, phase: Phase) -> None:
        """Begin a phase. Entering the same phase again proves that the rank is alive and adds to the phase's time."""
        self.end_phase()
        self.current = phase
        self.is_first = phase in STEPPED and phase not in self.entered
        self.entered.add(phase)
        self.send(Event(phase=phase))

    def end_phase(self) -> None:
        self.count()
        if self.spent:
            self.send(Event(spent={f"{part}_s": round(seconds, 4) for part, seconds in self.spent.items()}))
            self.spent.clear()

    def count(self) -> None:
        """Add the time since the last call to the current part or phase."""
        now = time.monotonic()
        took, self.since = now - self.since, now
        if self.nested:
            self.spent[self.nested[-1]] += took
        elif self.current is not None:
            self.spent[self.current.value] += took
            if self.is_first:
                self.spent[f"first_{self.current.value}"] += took

    @contextlib.contextmanager
    def spending(self, part: str) -> Iterator[None]:
        """Count the time inside for this part of a cell's time instead of the phase."""
        self.count()
        self.nested.append(part)
        try:
            yield
        finally:
            self.count()
            self.nested.pop()

    def checks(self, checks: list[Check]) -> None:
        self.send(Event(checks=tuple(checks)))

    def metric(self, name: str, value: float) -> None:
        self.send(Event(metrics={name: value}))

    def series(self, series: Mapping[str, tuple[float, ...]]) -> None:
        self.send(Event(series=series))

    def facts(self, facts: dict[str, Any]) -> None:
        self.send(Event(facts=facts))

    def late_modules(self, names: list[str]) -> None:
        self.send(Event(late_modules=tuple(names)))

    def modules(self, names: Sequence[str]) -> None:
        """Report modules of the case code that this process imported."""
        self.send(Event(modules=tuple(names)))

    def beat(self) -> None:
        self.send(Event())

    def error(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            message = str(error)
        except Exception as broken:  # noqa: BLE001 - an exception without a readable message is still the finding
            message = f"no message: showing it raised {type(broken).__name__}"
        text = getattr(error, "log", text)  # a script's own output explains more than our line that noticed
        self.end_phase()
        blame = is_ours(error, observing=self.is_observing)
        self.send(Event(error=ErrorReport(type(error).__name__, message[:LONGEST], text[-LONGEST:], is_ours=blame)))

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Mark code in which the harness inspects and the stack does no work: an exception inside is ours."""
        before, self.is_observing = self.is_observing, True
        with self.spending("judging"):
            yield
        self.is_observing = before  # after an exception it stays set: it shows where the exception came from

    def done(self) -> None:
        self.end_phase()
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.send(Event(metrics={"peak_rss_mib": round(peak_mib, 1)}, done=True))


def is_ours(error: BaseException, *, observing: bool = False) -> bool:
    """Return whether the harness or the machine is to blame, rather than the stack.

    An exception is ours if it is raised while we observe, or if no frame of the stack lies below our last one. A
    failing import, a ``LackingError`` and a ``RuntimeError`` (torch raises it from C++, under our line) are facts about
    the stack, and so is any exception under the lines of a call. A device or another rank may also fail late, while we
    observe.
    """
    if isinstance(error, OSError) and error.errno in MACHINE:
        return True
    if isinstance(error, (ImportError, MemoryError, RuntimeError)) or type(error).__name__ == "LackingError":
        return False
    if observing:
        return True
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1].filename if frames else ""
    return last.startswith(HARNESS) and not last.startswith(CALLS)


def run(job: Job, rank: int, pipe: int, body: Callable[[PipeReporter], None], parent: int) -> None:
    """Run ``body`` as this process's only purpose. Does not return. ``parent`` is the supervisor's pid."""
    reporter = PipeReporter(pipe)
    try:
        lead_group(parent)
        stack_file = redirect_output(Path(job.folder), rank)
        body(reporter)
        reporter.done()
        stack_file.close()
    except BaseException as error:  # noqa: BLE001 - every exception is the finding
        try:
            reporter.error(error)
            traceback.print_exc()
        finally:  # writing to the pipe may fail too, and the supervisor's stack lies above us
            leave(FAILED)
    leave(0)


def redirect_output(folder: Path, rank: int) -> Any:
    """Send output to a log, and Python stacks to a file when SIGUSR1 asks for them or a signal ends the process."""
    log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    stacks = (folder / f"rank-{rank}.stack").open("w")
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    return stacks
