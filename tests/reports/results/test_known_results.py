"""Only a red cell with the text of a report reproduces it; advice holds where its cells have the stated results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from matrix.known.known_problems import Problem
from matrix.run.outcome import ErrorRecord
from reports.render import known_page
from reports.results.grid import grid
from reports.results.known_results import AdviceResult, GpuResults, Reproduction, document, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    BuildOutcome = Callable[..., Outcome]
    BuildSet = Callable[..., SetRecord]
    BuildRun = Callable[..., RunRecord]

RAISED = ErrorRecord(type="ValueError", message="Must flatten tensors with uniform dtype")
OTHER = ErrorRecord(type="KeyError", message="'model'")


def a_problem(**other: Any) -> Problem:
    usual = {
        "id": "uniform-dtype",
        "title": "one flat parameter",
        "links": ["huggingface/peft#1"],
        "entries": ["a", "b"],
        "red": [{"case": "red", "sets": ["2024-06"], "shows": "uniform dtype"}],
        "green": [{"case": "green", "sets": ["2024-06"], "because": "another setting"}],
    }
    return Problem.model_validate({**usual, **other})


@pytest.fixture
def status_of(build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun) -> Callable[..., Reproduction]:
    def found(problem: Problem, **red: Any) -> Reproduction:
        outcomes = [build_outcome("red", **red)] if red else []
        return judge(problem, grid(build_run(), [build_set()], outcomes)).status

    return found


def test_red_with_the_reported_text_is_reproduced(status_of: Callable[..., Reproduction]) -> None:
    assert status_of(a_problem(), verdict="fail", error=RAISED) is Reproduction.REPRODUCED


def test_red_with_another_text_is_another_error(status_of: Callable[..., Reproduction]) -> None:
    assert status_of(a_problem(), verdict="fail", error=OTHER) is Reproduction.OTHER_ERROR


def test_a_green_cell_beside_another_error_does_not_make_it_not_reproduced(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    problem = a_problem(red=[{"case": "red", "sets": ["2024-06", "2024-09"], "shows": "uniform dtype"}])
    outcomes = [build_outcome("red"), build_outcome("red", "2024-09", verdict="fail", error=OTHER)]
    found = judge(problem, grid(build_run(), [build_set(), build_set("2024-09")], outcomes))
    assert found.status is Reproduction.OTHER_ERROR
    page = known_page.markdown(build_run(), [found])
    assert "2 red with another error" in page
    assert "\n## Red with another error\n" in page


def test_green_is_not_reproduced(status_of: Callable[..., Reproduction]) -> None:
    assert status_of(a_problem()) is Reproduction.NOT_RUN
    assert status_of(a_problem(), verdict="pass") is Reproduction.NOT_REPRODUCED


def test_a_skip_needs_other_hardware(status_of: Callable[..., Reproduction]) -> None:
    assert status_of(a_problem(), verdict="skip", reason="needs a GPU") is Reproduction.NEEDS_HARDWARE


ON_GPUS = {"case": "red", "sets": ["2024-06"], "shows": "uniform dtype", "device": "cuda"}
HARDWARE = "cuda: NVIDIA H200 x 2"


@pytest.fixture
def gpu_results(build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun) -> Callable[..., GpuResults]:
    """The results of some cells on two H200, by case; each is red with the reported text, or passes."""

    def measured(**verdicts: str) -> GpuResults:
        outcomes = [
            build_outcome(case, verdict=verdict, error=RAISED if verdict == "fail" else None, hardware=HARDWARE)
            for case, verdict in verdicts.items()
        ]
        matrix = grid(build_run(), [build_set()], outcomes)
        return GpuResults(matrix=matrix, drivers={("2024-06", HARDWARE): "580.159.04"})

    return measured


def test_results_on_gpus_judge_cells_for_gpus(
    build_run: BuildRun, build_set: BuildSet, build_outcome: BuildOutcome, gpu_results: Callable[..., GpuResults]
) -> None:
    cpu = grid(build_run(), [build_set()], [build_outcome("red")])
    found = judge(a_problem(red=[ON_GPUS], green=[], needs="a GPU"), cpu, gpu_results(red="fail"))
    assert (found.status, found.red[0].verdict) == (Reproduction.REPRODUCED, "fail")
    day = f"{build_outcome('red').started:%Y-%m-%d}"
    assert found.red[0].measured == f"{HARDWARE}, driver 580.159.04, {day}"
    assert f"uniform dtype`; {HARDWARE}, driver 580.159.04, {day}" in known_page.markdown(build_run(), [found])


@pytest.mark.parametrize(
    ("measured", "row", "status"),
    [
        ({}, {"red": [ON_GPUS]}, Reproduction.NEEDS_HARDWARE),
        ({"red": "pass"}, {"red": [ON_GPUS]}, Reproduction.NOT_REPRODUCED),
        ({"red": "pass"}, {"green": [{**ON_GPUS, "shows": ""}]}, Reproduction.NOT_REPRODUCED),
        ({"red": "fail"}, {"green": [{**ON_GPUS, "shows": ""}]}, Reproduction.NEEDS_HARDWARE),
        (
            {"other": "pass"},
            {"green": [{"case": "other", "sets": ["2024-06"], "device": "cuda"}]},
            Reproduction.NEEDS_HARDWARE,
        ),
        (
            {"red": "pass"},
            {"red": [{**ON_GPUS, "sets": ["2025-06"]}], "green": [{**ON_GPUS, "shows": ""}]},
            Reproduction.NEEDS_HARDWARE,
        ),
    ],
    ids=["not measured", "green", "green as stated", "red, stated green", "a remedy alone", "only other versions"],
)
def test_a_problem_that_needs_gpus_is_judged_if_its_cells_ran_there(
    measured: dict[str, str],
    row: dict[str, Any],
    status: Reproduction,
    build_run: BuildRun,
    build_set: BuildSet,
    gpu_results: Callable[..., GpuResults],
) -> None:
    usual = {"red": [{"case": "red", "sets": [], "shows": "uniform dtype"}], "green": [], "needs": "a GPU"}
    cpu = grid(build_run(), [build_set()], [])
    assert judge(a_problem(**{**usual, **row}), cpu, gpu_results(**measured)).status is status


def test_without_results_on_gpus_cells_for_gpus_were_not_run(
    build_run: BuildRun, build_set: BuildSet, build_outcome: BuildOutcome
) -> None:
    cpu = grid(build_run(), [build_set()], [build_outcome("red", verdict="fail", error=RAISED)])
    found = judge(a_problem(red=[ON_GPUS], needs="a GPU"), cpu)
    assert (found.status, found.red[0].verdict) == (Reproduction.NEEDS_HARDWARE, "not run")


@pytest.mark.parametrize(
    ("verdicts", "holding"),
    [
        ({"2024-06": "pass", "2024-09": "pass"}, AdviceResult.HOLDS),
        ({"2024-06": "pass", "2024-09": "fail"}, AdviceResult.ONLY),
        ({"2024-06": "wrong", "2024-09": "fail"}, AdviceResult.DOES_NOT),
        ({"2024-06": "skip"}, AdviceResult.UNKNOWN),
        ({"2024-06": "lost", "2024-09": "pass"}, AdviceResult.HOLDS),
    ],
)
def test_advice_holds_where_its_cells_are_green(
    verdicts: dict[str, str],
    holding: AdviceResult,
    build_outcome: BuildOutcome,
    build_set: BuildSet,
    build_run: BuildRun,
) -> None:
    claim = {"says": "set it", "green": ["green"], "sets": ["2024-06", "2024-09"]}
    outcomes = [build_outcome("green", key, verdict) for key, verdict in verdicts.items()]
    matrix = grid(build_run(), [build_set("2024-06"), build_set("2024-09")], outcomes)
    assert judge(a_problem(claims=[claim]), matrix).advice[0].holding is holding


def test_reports_are_counted_one_by_one(build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun) -> None:
    matrix = grid(build_run(), [build_set()], [build_outcome("red", verdict="fail", error=RAISED)])
    found = [judge(a_problem(), matrix)]
    assert document(found)["entries"] == {"reproduced": 2}
    assert "1 problem from 2 upstream reports: 2 reproduced" in known_page.markdown(build_run(), found)


def test_a_red_neighbour_is_not_shown_as_green(
    build_outcome: BuildOutcome, build_set: BuildSet, build_run: BuildRun
) -> None:
    outcomes = [build_outcome("red", verdict="fail", error=RAISED), build_outcome("green", verdict="wrong")]
    found = [judge(a_problem(), grid(build_run(), [build_set()], outcomes))]
    assert not found[0].has_green_cell
    assert "`green` on `2024-06`: wrong (not as expected)" in known_page.markdown(build_run(), found)
