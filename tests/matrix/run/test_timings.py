"""Tests the estimate of a run's time from past timings."""

from __future__ import annotations

import statistics
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from cases.space.case import case
from cases.space.verdict import Verdict
from matrix.run import timings
from matrix.run.outcome import Outcome
from matrix.versions.sets import load
from reports.answers import knowledge

if TYPE_CHECKING:
    from pathlib import Path

MANY = 50
SLOWEST = 20  # one of so many cells is left out
SET = load()[0]
ONE, OTHER = case("a heading", "a reason"), case("a heading", "a reason", method="dora")


def took(seconds: float, name: str = ONE.id) -> Outcome:
    return Outcome(
        set=SET.key,
        case=name,
        group="",
        why="",
        options={},
        verdict=Verdict.PASS,
        started=datetime.now(UTC),
        seconds=seconds,
    )


def test_without_timings_there_is_no_estimate(tmp_path: Path) -> None:
    assert timings.read(tmp_path, "cpu").estimate([(SET, [ONE])], workers=2, repeats=1) is None


def test_workers_share_the_cells_and_each_set_adds_its_overhead_once(tmp_path: Path) -> None:
    timings.note(tmp_path, "cpu", [took(4.0)], wall_s=12.0, workers=2)
    assert timings.read(tmp_path, "cpu").estimate([(SET, [ONE, ONE])], workers=2, repeats=3) == 3 * (10.0 + 4.0)


def test_a_case_that_never_ran_counts_as_a_usual_one_of_its_flow_at_the_speed_of_the_machine(tmp_path: Path) -> None:
    slow = 3.0 * timings.usual_seconds("train", "cpu")
    timings.note(tmp_path, "cpu", [took(slow)], wall_s=slow / 2, workers=2)
    past = timings.read(tmp_path, "cpu")
    assert past.estimate([(SET, [OTHER])], workers=1, repeats=1) == pytest.approx(slow)
    resumed = case("a heading", "a reason", flow="resume")
    assert past.seconds(resumed) == pytest.approx(3.0 * timings.usual_seconds("resume", "cpu"))


def test_a_flow_that_a_device_never_ran_counts_as_a_training() -> None:
    assert timings.usual_seconds("script", "cuda") == timings.usual_seconds("train", "cuda")
    assert timings.usual_seconds("resume", "cuda-gloo") == timings.usual_seconds("resume", "cuda")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_usual_times_are_those_of_the_published_cells(device: str) -> None:
    seconds: dict[str, list[float]] = {}
    for each in knowledge.load(device=device).cells.values():
        if each.seconds and each.verdict is not Verdict.HANG:  # which takes as long as somebody waits for it
            seconds.setdefault(str(each.options["flow"]), []).append(each.seconds)
    usual = timings.USUAL_S[device]
    assert seconds.keys() == usual.keys()
    for flow, values in seconds.items():
        if len(values) >= MANY:  # newly published cells may move the mean of few
            usually = sorted(values)[: len(values) - len(values) // SLOWEST]  # a busy machine may take a minute
            assert statistics.fmean(usually) == pytest.approx(usual[flow], rel=0.5)


def test_a_case_that_never_ran_counts_as_its_limit_if_it_has_one(tmp_path: Path) -> None:
    estimate = timings.read(tmp_path, "cpu").estimate([(SET, [ONE])], workers=1, repeats=2, limits={ONE.id: 60.0})
    assert estimate == 120.0


def test_a_damaged_file_counts_as_no_timings(tmp_path: Path) -> None:
    (tmp_path / timings.FILE).write_text("{")
    timings.note(tmp_path, "cuda", [took(1.0)], wall_s=1.0, workers=1)
    assert timings.read(tmp_path, "cpu").cells == {}
    assert timings.read(tmp_path, "cuda").cells == {ONE.id: 1.0}
