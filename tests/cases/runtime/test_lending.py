"""A cell on GPUs tells how long it waited for them, and how long they took to be free again."""

from __future__ import annotations

import contextlib
import copy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from cases import test_cells as running
from cases.runtime.gpu_pool import BusyError
from cases.runtime.wire import Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

ANSWER = {"name": "a", "verdict": "pass", "metrics": {"body_s": 1.0}, "facts": {}}


class Lender:
    @contextlib.contextmanager
    def lent(self, count: int) -> Iterator[tuple[str, ...]]:
        yield ("GPU-a", "GPU-b")[:count]

    def settled(self, lent: Sequence[str]) -> tuple[float, str]:
        return 0.2, f"{lent[-1]} has 600 MiB in use"


def test_a_job_on_gpus_has_its_own_and_tells_of_the_time_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Job] = []

    def ask(_: str, job: Job) -> dict[str, Any]:
        asked.append(job)
        return copy.deepcopy(ANSWER)

    monkeypatch.setattr(running, "lenders", Lender)
    monkeypatch.setattr(running, "ask", ask)
    job = Job(kind="cell", name="a", ranks=2, device="cuda", folder="f", cache="c")
    outcome: dict[str, Any] = running.run("server", job)
    assert asked[0].gpus == ("GPU-a", "GPU-b")
    assert outcome["metrics"].keys() == {"body_s", "gpus_wait_s", "gpus_settle_s"}
    assert outcome["metrics"]["gpus_settle_s"] == 0.2
    assert outcome["facts"] == {"left_on_gpus": "GPU-b has 600 MiB in use"}


def test_a_job_on_the_cpu_waits_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ask", lambda *_: ANSWER)
    job = Job(kind="cell", name="a", ranks=2, device="cpu", folder="f", cache="c")
    assert running.run("server", job) == ANSWER


def test_a_cell_keeps_its_outcome_where_its_cold_start_finds_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    class Busy(Lender):
        def lent(self, count: int) -> NoReturn:
            raise BusyError(f"needs {count} GPUs that are free")

    monkeypatch.setattr(running, "lenders", Busy)
    job = Job(kind="cell", name="a", ranks=2, device="cuda", folder="f", cache="c")
    fixtures: Any = SimpleNamespace(getfixturevalue=str)
    told = running.confirmed(ANSWER, job, fixtures)
    assert told == {**ANSWER, "facts": {"no_cold_start": "needs 2 GPUs that are free"}}
