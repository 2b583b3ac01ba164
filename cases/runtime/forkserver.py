"""A parent that imports the stack once and forks every rank: milliseconds instead of the ten seconds of an import.

    python -m cases.runtime.forkserver SOCKET --parent PID [--suite MODULE] [--cold]

Each connection to the socket carries one job and gets one cell report back. The process that answers must never touch
CUDA or a process group. If importing the stack does that, or fails, a server that imported nothing takes its place,
and every rank imports the stack itself (a cold start). Each report states the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cases.runtime import case_suite, thread_starts
from cases.runtime.process_tree import die_with_parent
from cases.runtime.supervisor import Supervisor
from cases.runtime.wire import CellReport, ErrorReport, Job, ServerStart
from cases.space.verdict import Verdict

if TYPE_CHECKING:
    from cases.runtime.case_suite import CaseSuite

UNFORKABLE = 3
# Importing torch's compiler, which every ``@torch.compile`` in a package does, starts worker processes and a thread for
# their answers (torch 2.4 to 2.8), so that no rank could be forked. With this, they start when a rank compiles.
UNSTARTED = ("TORCH_WARM_POOL", "0")
SLACK_S = 180.0  # import of the stack, hang analysis and ending, in addition to a job's deadline


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--parent", type=int, required=True, help="pid of the process that starts the server")
    parser.add_argument("--suite", default="cases.suite")
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    os.environ.setdefault(*UNSTARTED)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{arguments.socket}.new")
    listener.listen(256)
    Path(f"{arguments.socket}.new").rename(arguments.socket)  # a client that sees the name can connect
    suite = case_suite.load(arguments.suite)
    why_cold = "requested by --cold" if arguments.cold else serve_warm(listener, suite)
    serve(listener, suite, ServerStart("cold", why_cold))


def serve_warm(listener: socket.socket, suite: CaseSuite) -> str:
    """Let a child import the stack and serve. Returns only if the child cannot serve, with the reason."""
    reading, writing = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(reading)
        die_with_parent(parent)
        preload_and_serve(listener, suite, writing)
    os.close(writing)
    reason = b""
    while block := os.read(reading, 65536):
        reason += block
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"importing the stack was ended by {signal.Signals(-code).name}"
    return reason.decode() or f"the server ended with exit code {code}"


def preload_and_serve(listener: socket.socket, suite: CaseSuite, complaint: int) -> None:
    """Import the stack, check that forking is safe, serve. Does not return."""
    began = time.monotonic()
    try:
        with thread_starts.noted() as starts:
            suite.preload(to_fork=True)
        why_unforkable = suite.why_unforkable()
        if why_unforkable and starts:
            why_unforkable += f" ({'; '.join(dict.fromkeys(starts))})"
    except BaseException as error:  # noqa: BLE001 - every rank will meet it again and report it
        why_unforkable = f"importing the stack raised {type(error).__name__}: {error}"
    if why_unforkable:
        os.write(complaint, why_unforkable.encode())
        os._exit(UNFORKABLE)
    gc.freeze()  # what was imported stays: a collection in a rank would only copy its pages
    serve(listener, suite, ServerStart("warm", preload_s=round(time.monotonic() - began, 3)))


def serve(listener: socket.socket, suite: CaseSuite, start: ServerStart) -> None:
    """Fork a supervisor for each connection, for ever."""
    parent = os.getpid()
    while True:
        ready, _, _ = select.select([listener], [], [], 1.0)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not ready:
            continue
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer(connection, suite, start, parent)
        connection.close()


def answer(connection: socket.socket, suite: CaseSuite, start: ServerStart, parent: int) -> None:
    """Run one job. Does not return."""
    try:
        job = Job.from_json(connection.makefile("rb").readline())
        supervisor = Supervisor(suite, job, connection, parent)
        try:
            report = supervisor.run()
        except Exception as error:  # noqa: BLE001 - the harness is to blame, and the client must know it
            traceback.print_exc()
            supervisor.end_everything()
            report = lost(job, error)
        with contextlib.suppress(OSError):
            connection.sendall(replace(report, server=start).to_line())
    finally:
        sys.stderr.flush()
        os._exit(0)


def lost(job: Job, error: Exception) -> CellReport:
    """The report of a job whose supervisor failed: the cell is lost, not red."""
    message = f"the supervisor raised {type(error).__name__}: {error}"
    report = ErrorReport(type(error).__name__, str(error), traceback.format_exc())
    return CellReport(job.name, Verdict.LOST, message, error=report)


def run_job(path: str, job: Job) -> CellReport:
    """Run a job on the server that listens on this socket.

    Raises:
        OSError: the server is gone, or its supervisor ended without an answer or gave none in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(job.deadline_s + SLACK_S)
        client.connect(path)
        client.sendall(job.to_line())
        line = client.makefile("rb").readline()
    if not line:
        raise ConnectionError(f"the fork server gave no answer about {job.name}")
    return CellReport.from_json(line)


if __name__ == "__main__":
    main()
