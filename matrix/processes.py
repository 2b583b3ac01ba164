"""The one module of the harness that starts processes. Whatever it starts, it ends: the whole process group."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from io import FileIO
    from pathlib import Path

GRACE_S: Final = 2.0  # between SIGTERM and SIGKILL
POLL_S: Final = 0.01

called: Final[set[subprocess.Popen[bytes]]] = set()  # what a call waits for now, on any thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a command ended, and what it wrote to stdout and stderr, in the order it was written."""

    exit_code: int | None  # None: the deadline passed; negative: ended by that signal
    log: str


class CommandRunner(Protocol):
    """What runs a command: a seam, so that tests pass three lines instead of a process."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Finished: ...


def call(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """Run a command to its end or its deadline. Nothing of its process group survives this call."""
    # A file, not a pipe: a grandchild that keeps a pipe open would make us wait for it.
    with tempfile.TemporaryFile() as sink:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        called.add(child)
        exit_code = wait(child, timeout_s)
        sink.seek(0)
        return Finished(exit_code=exit_code, log=sink.read().decode(errors="replace"))


def reports(
    argv: Sequence[str],
    *,
    silence_s: float,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[str]:
    """Run a command with ``--report-fd N`` appended, and yield the lines it writes to that descriptor.

    Its output goes to ``log``. It is ended when it says nothing for ``silence_s`` or when the caller stops iterating;
    nothing of its process group survives.
    """
    reading, writing = os.pipe()
    with log.open("ab") as sink, os.fdopen(reading, "rb", buffering=0) as source:
        child = subprocess.Popen(
            [*argv, "--report-fd", str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            yield from lines(source, child, silence_s)
        finally:
            end_group(child)


def lines(source: FileIO, child: subprocess.Popen[bytes], silence_s: float) -> Iterator[str]:
    """Whole lines until the other side closes, the child ends, or nothing comes for too long."""
    held, last = b"", time.monotonic()
    while time.monotonic() - last < silence_s:
        ready, _, _ = select.select([source], [], [], 0.2)
        if not ready:
            if child.poll() is not None:
                return  # something it left behind may hold the pipe open
            continue
        block = os.read(source.fileno(), 65536)
        if not block:
            return
        last = time.monotonic()
        *whole, held = (held + block).split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)


def wait(child: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Exit code, or None if the deadline passed. The child must lead its own session."""
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:  # on KeyboardInterrupt as well
        end_group(child)
        called.discard(child)


def end_calls() -> None:
    """End what the calls of other threads wait for: Ctrl-C reaches only the main one."""
    for child in tuple(called):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


def end_group(leader: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the leader's group, SIGKILL to what is left of it after a grace period."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)
        if gone(leader, GRACE_S):
            return


def gone(leader: subprocess.Popen[bytes], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while True:
        leader.poll()  # an unreaped leader would count as alive
        try:
            os.killpg(leader.pid, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
