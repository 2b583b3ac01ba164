"""The only module of the harness that starts processes. It ends the whole process group of each one it starts."""

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

running: Final[set[subprocess.Popen[bytes]]] = set()  # children of the calls of all threads


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A command's exit code, and its output to stdout and stderr in the order of writing.

    ``exit_code`` is None if the deadline passed, and negative if a signal of that number ended the command.
    """

    exit_code: int | None
    log: str


class CommandRunner(Protocol):
    """Runs a command as ``call`` does. Tests pass a fake that starts no process."""

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
    """Run a command to its end or its deadline, then end its process group.

    Raises:
        OSError: the command cannot be started.
    """
    # A file, because a grandchild that keeps a pipe open would make this call wait for it.
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
        running.add(child)
        exit_code = wait(child, timeout_s)
        sink.seek(0)
        return Finished(exit_code=exit_code, log=sink.read().decode(errors="replace"))


def report_lines(
    argv: Sequence[str],
    *,
    silence_s: float,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[str]:
    """Run a command with ``--report-fd N`` appended, and yield the lines it writes to that descriptor.

    The command's output goes to ``log``. Its process group ends when it reports nothing for ``silence_s`` seconds, or
    when the caller stops iterating.
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
    """Complete lines, until the child closes the pipe, ends, or reports nothing for ``silence_s`` seconds."""
    partial, last = b"", time.monotonic()
    while time.monotonic() - last < silence_s:
        ready, _, _ = select.select([source], [], [], 0.2)
        if not ready:
            if child.poll() is not None:
                return  # a process that it started may keep the pipe open
            continue
        block = os.read(source.fileno(), 65536)
        if not block:
            return
        last = time.monotonic()
        *complete, partial = (partial + block).split(b"\n")
        yield from (line.decode(errors="replace") for line in complete)


def wait(child: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit code, or None if the deadline passed. The child must lead its own session; its group ends."""
    try:
        return child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:  # on KeyboardInterrupt as well
        end_group(child)
        running.discard(child)


def end_calls() -> None:
    """End the commands of all threads. Python delivers Ctrl-C to the main thread only."""
    for child in tuple(running):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


def end_group(leader: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the leader's group, and SIGKILL to what is left of it after a grace period."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(leader.pid, number)
        if has_ended(leader, GRACE_S):
            return


def has_ended(leader: subprocess.Popen[bytes], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while True:
        leader.poll()  # reap the leader, or it would count as alive
        try:
            os.killpg(leader.pid, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
