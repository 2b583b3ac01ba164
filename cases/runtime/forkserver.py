"""A parent that imports the stack once and forks every rank: milliseconds instead of the ten seconds of an import.

    python -m cases.runtime.forkserver SOCKET [--suite MODULE] [--cold]

Each connection to the socket carries one job (a JSON line) and gets one outcome back. The process that answers must
never touch CUDA or a process group; where importing the stack does, or fails, a server that imported nothing takes its
place, and every rank imports for itself (a cold start). The reason is said in each outcome.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.runtime.rank import die_with_parent
from cases.runtime.supervisor import Supervisor
from cases.runtime.wire import Job

if TYPE_CHECKING:
    from types import ModuleType

IMPURE = 3
SLACK_S = 180.0  # import of the stack, autopsy and ending, beside a job's deadline


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--suite", default="cases.suite")
    parser.add_argument("--cold", action="store_true")
    asked = parser.parse_args()
    die_with_parent()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{asked.socket}.new")
    listener.listen(256)
    Path(f"{asked.socket}.new").rename(asked.socket)  # whoever sees the name can connect
    suite = importlib.import_module(asked.suite)
    why_cold = "asked for" if asked.cold else warm(listener, suite)
    serve(listener, suite, {"start": "cold", "why_cold": why_cold, "preload_s": 0.0})


def warm(listener: socket.socket, suite: ModuleType) -> str:
    """Let a child import the stack and serve; returns only if it cannot, with the reason."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        die_with_parent()
        preloaded(listener, suite, writing)
    os.close(writing)
    reason = b""
    while block := os.read(reading, 65536):
        reason += block
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"importing the stack was ended by {signal.Signals(-code).name}"
    return reason.decode() or f"the server ended with exit code {code}"


def preloaded(listener: socket.socket, suite: ModuleType, complaint: int) -> None:
    """Import, look whether forking is safe, serve. Does not return."""
    began = time.monotonic()
    try:
        suite.preload(to_fork=True)
        impure = suite.impure()
    except BaseException as error:  # noqa: BLE001 - every rank will meet it again and report it
        impure = f"importing the stack raised {type(error).__name__}: {error}"
    if impure:
        os.write(complaint, impure.encode())
        os._exit(IMPURE)
    gc.freeze()  # what was imported stays: a collection in a rank would only copy its pages
    serve(listener, suite, {"start": "warm", "why_cold": "", "preload_s": round(time.monotonic() - began, 3)})


def serve(listener: socket.socket, suite: ModuleType, how: dict[str, Any]) -> None:
    """Fork a supervisor for each connection, for ever."""
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
            answer(connection, suite, how)
        connection.close()


def answer(connection: socket.socket, suite: ModuleType, how: dict[str, Any]) -> None:
    """One job. Does not return."""
    try:
        job = Job.read(connection.makefile("rb").readline())
        supervisor = Supervisor(suite, job, connection)
        try:
            outcome = supervisor.run()
        except Exception as error:  # noqa: BLE001 - ours, and whoever asked must hear of it
            traceback.print_exc()
            supervisor.end_everything()
            outcome = given_up(job, error)
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps({**outcome, "start": how}).encode() + b"\n")
    finally:
        sys.stderr.flush()
        os._exit(0)


def given_up(job: Job, error: Exception) -> dict[str, Any]:
    """The outcome of a job whose supervisor failed: the cell is lost, not red."""
    message = f"the supervisor raised {type(error).__name__}: {error}"
    told = {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc(), "rank": None}
    return {"name": job.name, "verdict": "lost", "reason": message, "error": told, "metrics": {}, "facts": {}}


def ask(path: str, job: Job) -> dict[str, Any]:
    """Run a job on a server; returns its outcome.

    Raises:
        OSError: the server is gone, or its supervisor ended without an answer or gave none in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(job.deadline_s + SLACK_S)
        client.connect(path)
        client.sendall(job.line())
        line = client.makefile("rb").readline()
    if not line:
        raise ConnectionError(f"the fork server gave no answer about {job.name}")
    answer: dict[str, Any] = json.loads(line)
    return answer


if __name__ == "__main__":
    main()
