"""Tests the estimate of a run's time from past timings."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cases.space.case import case
from cases.space.verdict import Verdict
from matrix.run import timings
from matrix.run.outcome import Outcome
from matrix.versions.sets import load

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_case_that_never_ran_counts_as_the_median(tmp_path: Path) -> None:
    timings.note(tmp_path, "cpu", [took(4.0)], wall_s=2.0, workers=2)
    assert timings.read(tmp_path, "cpu").estimate([(SET, [OTHER])], workers=1, repeats=1) == 4.0


def test_a_case_that_never_ran_counts_as_its_limit_if_it_has_one(tmp_path: Path) -> None:
    estimate = timings.read(tmp_path, "cpu").estimate([(SET, [ONE])], workers=1, repeats=2, limits={ONE.id: 60.0})
    assert estimate == 120.0


def test_a_damaged_file_counts_as_no_timings(tmp_path: Path) -> None:
    (tmp_path / timings.FILE).write_text("{")
    timings.note(tmp_path, "cuda", [took(1.0)], wall_s=1.0, workers=1)
    assert timings.read(tmp_path, "cpu").cells == {}
    assert timings.read(tmp_path, "cuda").cells == {ONE.id: 1.0}
