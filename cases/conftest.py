"""Fixtures of the suite: one fork server for the whole run, shared by every xdist worker.

By hand, ``pytest cases -k "nf4 and fsdp2"`` runs cases in whatever environment pytest is in. The harness passes
``--request FILE`` (which cells, where to write) and reads one JSON line per cell from ``--report-fd``.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))  # `cases` is importable wherever the folder was copied to

from cases.runtime.rank import die_with_parent
from cases.runtime.rank_env import variables
from cases.runtime.wire import Job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.runtime.silence import Patience

SOCKET = "FTMATRIX_SOCKET"
OUTCOME = "outcome"
SERVER_STOP_S = 10
LONGEST_PARENT = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ftmatrix")
    group.addoption("--request", type=Path, help="JSON file: cells, device, folders and limits; without it, all cases")
    group.addoption("--report-fd", type=int, help="open file descriptor that gets one JSON line per finished cell")
    group.addoption("--suite", default="cases.suite", help="module that holds the cases")
    group.addoption("--cold", action="store_true", help="every rank imports for itself")


@dataclass(frozen=True)
class Request:
    """What the harness asks for.

    ``cold_sample`` names cells that are also run by a cold start, and must agree; ``given`` says where lies what
    another version set kept for a cell.
    """

    cells: tuple[str, ...]
    device: str
    folder: Path
    cache: Path
    limits: dict[str, Any]
    cold_sample: tuple[str, ...] = ()
    given: dict[str, str] = field(default_factory=dict)

    def cell(self, name: str, case: Any, allowed: Patience, tag: str = "") -> Job:
        """The job of a cell. It carries the options of its case: the processes that run it do not list cases."""
        return replace(self.job("cell", name, case.ranks, allowed, tag), options=vars(case.options))

    def job(self, kind: str, name: str, ranks: int, allowed: Patience, tag: str = "") -> Job:
        """``allowed`` counts where the harness asks for no limit of its own."""
        own: dict[str, Any] = {"silence_s": allowed.silence_s, "silence_why": allowed.why}
        limits = self.limits if "silence_s" in self.limits else {**own, **self.limits}
        return Job(
            kind=kind,
            name=name,
            ranks=ranks,
            device=self.device,
            folder=str(self.folder / kind / f"{name}{tag}"),
            cache=str(self.cache),
            given=self.given.get(name, ""),
            **limits,
        )


def pytest_configure(config: pytest.Config) -> None:
    config.suite = importlib.import_module(config.getoption("--suite"))  # type: ignore[attr-defined]
    if not hasattr(config, "workerinput"):  # the controller, or the only process
        if config.getoption("--request") is not None:
            die_with_parent()  # a harness that was killed runs no more cells
        scratch = config.scratch = Path(tempfile.mkdtemp(prefix="ftmatrix-", dir=socket_parent()))  # type: ignore[attr-defined]
        os.environ[SOCKET] = str(scratch / "server")
        os.environ.setdefault("FTMATRIX_SCRATCH", str(scratch))
        config.server = started(config, str(scratch / "server"))  # type: ignore[attr-defined]
    config.request = requested(config)  # type: ignore[attr-defined]


def socket_parent() -> str:
    """The temporary folder, unless a socket's address (108 bytes at most, unix(7)) would not fit below it."""
    return tempfile.gettempdir() if len(tempfile.gettempdir()) < LONGEST_PARENT else "/tmp"  # noqa: S108 - a last resort


def requested(config: pytest.Config) -> Request:
    path = config.getoption("--request")
    if path is None:
        scratch = Path(os.environ["FTMATRIX_SCRATCH"])
        device = os.environ.get("FTMATRIX_DEVICE", "cpu")
        cases = config.suite.CASES  # type: ignore[attr-defined]
        asked: dict[str, Any] = {"cells": list(cases), "device": device, "folder": scratch, "cache": scratch / "cache"}
    else:
        asked = json.loads(path.read_text())
    for name in ("folder", "cache"):
        asked[name] = Path(asked[name])
        asked[name].mkdir(parents=True, exist_ok=True)
    return Request(
        cells=tuple(asked["cells"]),
        device=asked["device"],
        folder=asked["folder"],
        cache=asked["cache"],
        limits=asked.get("limits", {}),
        cold_sample=tuple(asked.get("cold_sample", ())),
        given=asked.get("given", {}),
    )


def started(config: pytest.Config, path: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cases.runtime.forkserver", path, "--suite", config.getoption("--suite")]
    if config.getoption("--cold"):
        command.append("--cold")
    server = subprocess.Popen(command, cwd=Path(__file__).parent.parent, env=variables(os.environ))
    while not Path(path).exists() and server.poll() is None:
        time.sleep(0.005)  # until it listens: a few milliseconds, before anything is imported
    return server


def pytest_unconfigure(config: pytest.Config) -> None:
    server = getattr(config, "server", None)
    if server is not None:
        server.kill()  # its children end with it
        server.wait(SERVER_STOP_S)
        if config.getoption("--request") is not None:  # by hand, the logs lie there
            shutil.rmtree(config.scratch, ignore_errors=True)  # type: ignore[attr-defined]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cell" in metafunc.fixturenames:
        metafunc.parametrize("cell", metafunc.config.request.cells)  # type: ignore[attr-defined]


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the controller: pass a finished cell's outcome on to the harness."""
    descriptor = REPORT.get("fd")
    if descriptor is None or report.when != "call":
        return
    for name, value in report.user_properties:
        if name == OUTCOME:
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
def request_(pytestconfig: pytest.Config) -> Request:
    asked: Request = pytestconfig.request  # type: ignore[attr-defined]
    return asked


@pytest.fixture(scope="session")
def suite(pytestconfig: pytest.Config) -> Any:
    return pytestconfig.suite  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def server() -> str:
    return os.environ[SOCKET]


@pytest.fixture(scope="session")
def cold_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """A second server that imported nothing, for the sample of cells that must agree with a cold start."""
    path = f"{os.environ[SOCKET]}-cold-{os.getpid()}"
    pytestconfig.option.cold = True
    process = started(pytestconfig, path)
    yield path
    process.kill()
    process.wait(SERVER_STOP_S)
