"""Fixtures of the test session that runs cells: one fork server for the whole session, shared by all xdist workers.

Run ``pytest cases -k "nf4 and fsdp2"`` to run cases in the environment of this pytest. The harness passes ``--request
FILE`` (a ``SessionRequest``) and reads one ``CellReport`` per line from the descriptor ``--report-fd``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))  # `cases` is importable wherever the folder was copied to

from cases.runtime import case_suite
from cases.runtime.process_tree import die_with_parent
from cases.runtime.rank_env import variables
from cases.runtime.wire import REPORT_PROPERTY, SessionRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.runtime.case_suite import CaseSuite

SOCKET, SCRATCH = "FTMATRIX_SOCKET", "FTMATRIX_SCRATCH"
SERVER_STOP_S = 10
LONGEST_PARENT = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ftmatrix")
    group.addoption("--request", type=Path, help="JSON file with the cells to run, their device and limits")
    group.addoption("--report-fd", type=int, help="open file descriptor that gets one JSON line per finished cell")
    group.addoption("--suite", default="cases.suite", help="module that holds the suite of cases")
    group.addoption("--cold", action="store_true", help="let every rank import the stack itself")


def pytest_configure(config: pytest.Config) -> None:
    config.suite = case_suite.load(config.getoption("--suite"))  # type: ignore[attr-defined]
    path = config.getoption("--request")
    request = None if path is None else SessionRequest.from_json(path.read_text(encoding="utf-8"))
    if not hasattr(config, "workerinput"):  # the controller, or the only process
        if request is not None and request.harness_pid:
            die_with_parent(request.harness_pid)  # the session ends with its harness
        scratch = config.scratch = Path(tempfile.mkdtemp(prefix="ftmatrix-", dir=socket_parent()))  # type: ignore[attr-defined]
        os.environ[SOCKET] = str(scratch / "server")
        os.environ.setdefault(SCRATCH, str(scratch))
        config.server = start_server(config, str(scratch / "server"))  # type: ignore[attr-defined]
    config.request = with_folders(request or request_of_all(config.suite))  # type: ignore[attr-defined]


def socket_parent() -> str:
    """The temporary folder, unless a socket's address (108 bytes at most, unix(7)) would not fit below it."""
    return tempfile.gettempdir() if len(tempfile.gettempdir()) < LONGEST_PARENT else "/tmp"  # noqa: S108 - a last resort


def request_of_all(suite: CaseSuite) -> SessionRequest:
    """The request for a manual pytest run: all cases."""
    scratch = os.environ[SCRATCH]
    device = os.environ.get("FTMATRIX_DEVICE", "cpu")
    return SessionRequest(tuple(suite.cases), device, folder=scratch, cache=str(Path(scratch, "cache")))


def with_folders(request: SessionRequest) -> SessionRequest:
    """The request, after its folders have been created."""
    for folder in (request.folder, request.cache):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return request


def start_server(config: pytest.Config, path: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cases.runtime.forkserver", path, "--parent", str(os.getpid())]
    command += ["--suite", config.getoption("--suite"), *(["--cold"] if config.getoption("--cold") else [])]
    server = subprocess.Popen(command, cwd=Path(__file__).parent.parent, env=variables(os.environ))
    while not Path(path).exists() and server.poll() is None:
        time.sleep(0.005)  # until it listens: a few milliseconds, before it imports the stack
    return server


def pytest_unconfigure(config: pytest.Config) -> None:
    server = getattr(config, "server", None)
    if server is not None:
        server.kill()  # its children end with it
        server.wait(SERVER_STOP_S)
        if config.getoption("--request") is not None:  # keep the logs of a manual run
            shutil.rmtree(config.scratch, ignore_errors=True)  # type: ignore[attr-defined]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" in metafunc.fixturenames:
        metafunc.parametrize("cell", metafunc.config.request.cells)  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Pass a finished cell's report on to the harness (in the controller)."""
    descriptor = REPORT.get("fd")
    if descriptor is None or report.when != "call":
        return
    for name, value in report.user_properties:
        if name == REPORT_PROPERTY:
            write(descriptor, str(value).encode() + b"\n")


REPORT: dict[str, int] = {}


def pytest_sessionstart(session: pytest.Session) -> None:
    descriptor = session.config.getoption("--report-fd")
    if descriptor is not None and not hasattr(session.config, "workerinput"):
        REPORT["fd"] = descriptor


def write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


@pytest.fixture(scope="session")
def session_request(pytestconfig: pytest.Config) -> SessionRequest:
    found: SessionRequest = pytestconfig.request  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="session")
def suite(pytestconfig: pytest.Config) -> CaseSuite:
    found: CaseSuite = pytestconfig.suite  # type: ignore[attr-defined]
    return found


@pytest.fixture(scope="session")
def server() -> str:
    return os.environ[SOCKET]


@pytest.fixture(scope="session")
def cold_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """A second server that imported nothing, for the sample of cells that must agree with a cold start."""
    path = f"{os.environ[SOCKET]}-cold-{os.getpid()}"
    pytestconfig.option.cold = True
    process = start_server(pytestconfig, path)
    yield path
    process.kill()
    process.wait(SERVER_STOP_S)
