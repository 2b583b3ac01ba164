"""Analyses ranks while they hang: their stacks, the collectives they are in, and the state of their GPUs.

Each part has its own time limit, and a part that fails does not affect the others. The verdict does not depend on them.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cases.runtime import flight_recorder, nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STACKS_S = 2.0  # limit for a hung rank to write its stacks
DEVICES_S = 3.0  # limit for the driver to report the state of the GPUs
DEVICES = (sys.executable, "-I", nvml.__file__)  # -I: its folder has modules whose names hide others
KILLED_S = 0.5
POLL_S = 0.02
FILE = "autopsy.log"


@dataclass(frozen=True)
class HangAnalysis:
    """The innermost call of each rank, and the collective that the ranks disagree on, if any."""

    waiting_in: Mapping[int, str]
    desync: str
    seconds: float


@dataclass
class AnalysisLog:
    """Findings for people, in the order in which they were made."""

    lines: list[str] = field(default_factory=list)

    def attempt(self, what: str, look: Callable[[], None]) -> None:
        """Run one part of the analysis; log its error in place of its findings."""
        try:
            look()
        except Exception as error:  # noqa: BLE001 - the log has the error, and the other parts follow
            self.lines.append(f"{what}: not available: {type(error).__name__}: {error}")


def examine(
    folder: Path, ranks: Mapping[int, int], gpus: Sequence[str], *, cut_short: Callable[[], bool] = lambda: False
) -> HangAnalysis:
    """Analyse the ranks of a job, given by number and pid, and the GPUs that it has acquired.

    Leaves ``autopsy.log`` and a rank's ``.stack`` and ``.collectives`` in ``folder``. Takes about a second, and at most
    the sum of its limits.
    """
    began = time.monotonic()
    notes, waiting_in, desync = AnalysisLog(), dict.fromkeys(ranks, ""), [""]

    def stacks() -> None:
        write_stacks(folder, ranks, cut_short)
        waiting_in.update({number: innermost(stack_file(folder, number)) for number in ranks})
        notes.lines += [f"rank {number}: {call or 'wrote no stack'}" for number, call in waiting_in.items()]

    def collectives() -> None:  # after the stacks: Python may crash while it writes those of a running thread
        listening = flight_recorder.request_dumps(folder, list(ranks))
        found = flight_recorder.read_dumps(folder, listening)
        for number in ranks:
            if number in found.entries:
                (folder / f"rank-{number}.collectives").write_text(flight_recorder.summary(found.entries[number]))
            else:
                missing = "did not report its collectives" if number in listening else "is in no process group"
                notes.lines.append(f"rank {number} {found.errors.get(number, missing)}")
        desync[0] = flight_recorder.disagreement(found.entries)
        agreed = "the ranks agree" if len(found.entries) > 1 else "unknown"
        notes.lines.append(f"collectives: {desync[0] or agreed}")

    notes.attempt("stacks", stacks)
    if len(ranks) > 1:
        notes.attempt("collectives", collectives)
    if gpus:
        notes.attempt("GPUs", lambda: notes.lines.extend(device_states(gpus)))
    notes.attempt("processes", lambda: notes.lines.extend(process_state(*each) for each in ranks.items()))
    with contextlib.suppress(OSError):
        (folder / FILE).write_text("\n".join(notes.lines) + "\n")
    return HangAnalysis(waiting_in, desync[0], time.monotonic() - began)


def write_stacks(folder: Path, ranks: Mapping[int, int], cut_short: Callable[[], bool]) -> None:
    """Make every rank write its Python stacks; return when they stop growing, or after the limit."""
    for pid in ranks.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    until = time.monotonic() + STACKS_S
    files = [stack_file(folder, number) for number in ranks]
    seen: list[int] = []
    while time.monotonic() < until and not cut_short() and (0 in seen or seen != [size(path) for path in files]):
        seen = [size(path) for path in files]
        time.sleep(POLL_S)


def stack_file(folder: Path, number: int) -> Path:
    return folder / f"rank-{number}.stack"


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


CRASHED = "Fatal Python error"  # while it wrote the stacks
THREAD = re.compile(r"^(?:Current thread|Thread) ", re.MULTILINE)
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
WRAPPERS = ("c10d_logger.py", "_contextlib.py", "decorators.py")


def innermost(path: Path) -> str:
    """The innermost call of a rank's main thread, e.g. ``all_reduce (distributed_c10d.py:2501)``; empty if unknown."""
    try:
        text = path.read_text()
    except OSError:
        return ""
    if CRASHED in text:
        return ""
    main = THREAD.split(text)[-1]  # the newest thread comes first; any of them may have received the signal
    for frame in FRAME.finditer(main):
        name = Path(frame["file"]).name
        if name not in WRAPPERS:
            return f"{frame['function']} ({name}:{frame['line']})"
    return ""


def device_states(gpus: Sequence[str]) -> list[str]:
    """A line for each GPU, from a process of its own: a broken driver may never answer, or crash its client."""
    with tempfile.TemporaryFile("w+") as output:  # a pipe might never be closed
        child = subprocess.Popen([*DEVICES, *gpus], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = child.wait(DEVICES_S)
        except subprocess.TimeoutExpired:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # a process that waits in a driver may not end
                child.wait(KILLED_S)
            return [f"GPUs: the driver did not answer in {DEVICES_S:g} s"]
        output.seek(0)
        return output.read().splitlines() or [f"GPUs: the process that queried the driver ended with exit code {code}"]


def process_state(number: int, pid: int) -> str:
    """The state of a rank in the kernel (running, sleeping, stopped, in a driver: ``D``) and the call it waits in."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    waits = ""
    with contextlib.suppress(OSError):
        waits = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    state, held = status.get("State", "unknown").strip(), status.get("VmRSS", "unknown").strip()
    return f"rank {number}: process {pid}, {state}{f', in {waits}' if waits else ''}, {held} of memory"
