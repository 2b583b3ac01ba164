"""Known problems that published runs showed on a report's sets: only what ran there, red, with the row's text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from matrix.known.known_problems import Cells, Problem
from reports.answers import knowledge, known_problems
from reports.render.markdown import problems as section
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.known_problems import ReproducedProblem

SAID = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
OTHER = "ValueError: Cannot flatten integer dtype tensors"
FLAT = "fsdp-qlora-dtype-and-merge-device"  # a problem that the signature of what is SAID names


@pytest.fixture
def shown(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., ReproducedProblem]:
    """Of a problem whose row names 2024-06, what these cells show; each says why it is red, or is green."""

    def of(cells: Mapping[tuple[str, str], str], pattern: str = "uniform dtype", **row: Any) -> ReproducedProblem:
        problem = Problem(
            **{
                "id": FLAT,
                "title": "a",
                "red": (Cells(case="red", sets=("2024-06",), shows=pattern),),
                "green": (Cells(case="green", sets=("2024-06",)),),
                **row,
            }
        )
        outcomes = [
            build_outcome(case, key, "fail" if reason else "pass", reason=reason, error=None)
            for (case, key), reason in cells.items()
        ]
        sets = [build_set(key) for key in dict.fromkeys(key for _, key in cells)]
        return known_problems.on(problem, grid(build_run(), sets, outcomes), sets)

    return of


def pins(device: str) -> dict[str, dict[str, str]]:
    return {column.key: column.pins for column in knowledge.load(device=device).sets}


def test_it_was_met_where_its_cell_is_red_as_the_row_says(shown: Callable[..., ReproducedProblem]) -> None:
    found = shown({("red", "2024-06"): SAID, ("green", "2024-06"): ""})
    assert (found.red, found.green) == ({"red": ("2024-06",)}, {"green": ("2024-06",)})


@pytest.mark.parametrize("reason", [OTHER, ""])
def test_what_is_green_or_says_something_else_does_not_show_it(
    shown: Callable[..., ReproducedProblem], reason: str
) -> None:
    assert shown({("red", "2024-06"): reason, ("red", "2025-06"): reason}).red == {}


def test_it_is_met_on_sets_that_the_row_does_not_name(shown: Callable[..., ReproducedProblem]) -> None:
    """A GPU's sets are not those that a row names."""
    found = shown({("red", "2025-12+torch2.11.0+cu130"): SAID, ("green", "2025-12+torch2.11.0+cu130"): ""})
    assert found.red == {"red": ("2025-12+torch2.11.0+cu130",)}
    assert found.green == {"green": ("2025-12+torch2.11.0+cu130",)}


def test_there_it_is_not_told_if_it_is_known_to_be_something_else(shown: Callable[..., ReproducedProblem]) -> None:
    cells = {("red", "2024-06"): SAID, ("red", "2025-06"): SAID}
    assert shown(cells, id="another").red == {"red": ("2024-06",)}
    unheard = "ValueError: nobody has heard of it"
    assert shown({("red", "2025-06"): unheard}, "nobody has heard", id="another").red == {"red": ("2025-06",)}


def test_there_a_blocked_cell_shows_nothing(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> None:
    problem = Problem(id="a", title="a", red=(Cells(case="red", sets=("2024-06",), shows="no such wheel"),))
    sets = [build_set("2024-06"), build_set("2025-06")]
    outcomes = [build_outcome("red", each.key, "blocked", reason="no such wheel") for each in sets]
    assert known_problems.on(problem, grid(build_run(), sets, outcomes), sets).red == {"red": ("2024-06",)}


def test_a_row_that_waits_for_hardware_is_not_met_by_its_text(shown: Callable[..., ReproducedProblem]) -> None:
    waiting = (Cells(case="red", sets=(), shows="uniform dtype"),)
    assert shown({("red", "2024-06"): SAID}, red=waiting, needs="eight GPUs").red == {}


def test_what_is_green_elsewhere_is_not_beside_it(shown: Callable[..., ReproducedProblem]) -> None:
    assert shown({("red", "2024-06"): SAID, ("green", "2025-06"): ""}).green == {}


def test_the_section_says_all_hardware_and_days(
    build_outcome: Callable[..., Outcome], shown: Callable[..., ReproducedProblem]
) -> None:
    one = shown({("red", "2024-06"): SAID})
    later = build_outcome("red", hardware="cpu: other", started=datetime(2026, 12, 24, tzinfo=UTC))
    first = one.shown[0].model_copy(update={"hardware": "cpu: one", "started": datetime(2026, 11, 20, tzinfo=UTC)})
    met = [known_problems.ReproducedProblem(problem=one.problem, shown=(each,), beside=()) for each in (later, first)]
    assert known_problems.ran(met) == "cpu: one; cpu: other, 2026-11-20 to 2026-12-24"
    assert known_problems.ran(met[1:]) == "cpu: one, 2026-11-20"
    assert any("(cpu: one; cpu: other, 2026-11-20 to 2026-12-24)" in part for part in section(met))


# --- what is published ------------------------------------------------------------------------------------------------


def test_problems_are_of_the_sets_asked_for_and_silent_ones_come_first() -> None:
    found = known_problems.met({"2025-06": pins("cpu")["2025-06"]}, device="cpu")
    silent = [each.problem.silent for each in found]
    assert any(silent)
    assert silent == sorted(silent, reverse=True)
    assert {outcome.set for each in found for outcome in (*each.shown, *each.beside)} == {"2025-06"}


def test_what_gpus_showed_is_told_of_gpus() -> None:
    found = known_problems.met(pins("cuda"), device="cuda")
    assert {outcome.hardware.partition(":")[0] for each in found for outcome in (*each.shown, *each.beside)} == {"cuda"}
    assert any(each.problem.family for each in found)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_of_two_problems_of_one_cell_only_the_one_that_it_shows_is_told(device: str) -> None:
    """With accumulation a trainer's loss doubled once, and was halved later; both show in the same number."""
    found = {each.problem.id: each for each in known_problems.met(pins(device), device=device)}
    doubles, halves = (
        {outcome.cell for outcome in found[name].shown} if name in found else set()
        for name in ("trainer-accumulation-doubles", "trainer-accumulation-halves")
    )
    assert doubles.isdisjoint(halves)
    assert bool(doubles and halves) == (device == "cpu")


def test_no_problem_is_told_of_a_device_without_results() -> None:
    assert known_problems.met(pins("cpu"), device="tpu") == ()
