"""A cell on GPUs reports how long it waited for them and until they were free again; a settled cell does not run."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from cases import test_cells as running
from cases.runtime.gpu_pool import BusyError
from cases.runtime.wire import REPORT_PROPERTY, CellReport, ErrorReport, Job, SessionRequest
from cases.space.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

REPORT = CellReport("a", Verdict.PASS, metrics={"body_s": 1.0})


class FakePool:
    @contextlib.contextmanager
    def acquire(self, count: int) -> Iterator[tuple[str, ...]]:
        yield ("GPU-a", "GPU-b")[:count]

    def wait_until_free(self, uuids: Sequence[str]) -> tuple[float, str]:
        return 0.2, f"{uuids[-1]} has 600 MiB in use"


def job(device: str) -> Job:
    return Job(kind="cell", name="a", ranks=2, device=device, folder="f", cache="c")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that run, with GPUs of a fake pool."""
    found: list[Job] = []

    def run_job(_: str, job: Job) -> CellReport:
        found.append(job)
        return REPORT

    monkeypatch.setattr(running, "pool", FakePool)
    monkeypatch.setattr(running, "run_job", run_job)
    return found


def test_a_job_acquires_gpus_and_reports_the_waits(jobs: list[Job]) -> None:
    report = running.run("server", job("cuda"))
    assert jobs[0].gpus == ("GPU-a", "GPU-b")
    assert report.metrics.keys() == {"body_s", "gpus_wait_s", "gpus_settle_s"}
    assert report.metrics["gpus_settle_s"] == 0.2
    assert report.facts == {"left_on_gpus": "GPU-b has 600 MiB in use"}


def test_a_job_on_a_shared_gpu_acquires_one(jobs: list[Job]) -> None:
    running.run("server", job("cuda-gloo"))
    assert jobs[0].gpus == ("GPU-a",)


def test_a_job_on_the_cpu_acquires_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "run_job", lambda *_: REPORT)
    assert running.run("server", job("cpu")) == REPORT


def test_a_cell_keeps_its_report_if_its_cold_start_finds_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class BusyPool(FakePool):
        def acquire(self, count: int) -> NoReturn:
            raise BusyError(f"needs {count} GPUs that are free")

    monkeypatch.setattr(running, "pool", BusyPool)
    fixtures: Any = SimpleNamespace(getfixturevalue=str)
    report = running.confirm(REPORT, job("cuda"), fixtures)
    assert report == replace(REPORT, facts={"no_cold_start": "needs 2 GPUs that are free"})


def test_a_cold_start_that_agrees_adds_its_time() -> None:
    assert running.compare(REPORT, replace(REPORT, seconds=9.0)).metrics["cold_s"] == 9.0


@pytest.mark.parametrize(
    "cold",
    [
        replace(REPORT, verdict=Verdict.FAIL, reason="no"),
        replace(REPORT, error=ErrorReport("ValueError", "no")),
    ],
)
def test_a_cold_start_that_disagrees_makes_the_cell_lost(cold: CellReport) -> None:
    assert running.compare(REPORT, cold).verdict is Verdict.LOST


def test_a_settled_cell_starts_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stated: dict[str, Any] = {}
    monkeypatch.setattr(running, "environment_facts", lambda *_: {"device": "cpu"})
    monkeypatch.setattr(running, "run", lambda *_: pytest.fail("it ran"))
    suite: Any = SimpleNamespace(why_settled=lambda cell, session: f"{cell} is known in {session}")
    request: Any = SessionRequest(("a",), "cpu", folder=str(tmp_path), cache=str(tmp_path))
    with pytest.raises(pytest.skip.Exception):
        running.test_cell("a", request, suite, "server", stated.__setitem__, SimpleNamespace())  # type: ignore[arg-type]
    report = CellReport.from_json(stated[REPORT_PROPERTY])
    assert (report.verdict, report.reason) == (Verdict.SKIP, f"a is known in {tmp_path}")


def test_the_suite_takes_note_of_a_finished_cell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    noted: list[tuple[CellReport, Path]] = []
    monkeypatch.setattr(running, "environment_facts", lambda *_: {"device": "cpu"})
    monkeypatch.setattr(running, "why_skipped", lambda *_: ("", ()))
    monkeypatch.setattr(running, "job_of_cell", lambda *_: job("cpu"))
    monkeypatch.setattr(running, "run", lambda *_: REPORT)
    suite: Any = SimpleNamespace(why_settled=lambda *_: "", note=lambda *found: noted.append(found))
    request: Any = SessionRequest(("a",), "cpu", folder=str(tmp_path), cache=str(tmp_path))
    running.test_cell("a", request, suite, "server", lambda *_: None, SimpleNamespace())  # type: ignore[arg-type]
    assert noted == [(replace(REPORT, facts={"device": "cpu"}), tmp_path)]
