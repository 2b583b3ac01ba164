"""Known problems that published runs reproduced on the sets of a report."""

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

MESSAGE = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
OTHER_MESSAGE = "ValueError: Cannot flatten integer dtype tensors"
FLAT = "fsdp-qlora-dtype-and-merge-device"  # a problem that the signature of MESSAGE names


@pytest.fixture
def shown(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., ReproducedProblem]:
    """Match a problem on 2024-06 with cells; each cell has an error message, or is green if it is empty."""

    def match(
        cells: Mapping[tuple[str, str], str], pattern: str = "uniform dtype", device: str = "cpu", **row: Any
    ) -> ReproducedProblem:
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
        return known_problems.match_problem(problem, grid(build_run(), sets, outcomes), sets, device)

    return match


def pins(device: str) -> dict[str, dict[str, str]]:
    return {column.key: column.pins for column in knowledge.load(device=device).sets}


def test_a_problem_is_reproduced_if_its_cell_has_its_message(shown: Callable[..., ReproducedProblem]) -> None:
    found = shown({("red", "2024-06"): MESSAGE, ("green", "2024-06"): ""})
    assert (found.red, found.green) == ({"red": ("2024-06",)}, {"green": ("2024-06",)})


@pytest.mark.parametrize("reason", [OTHER_MESSAGE, ""])
def test_green_cells_and_other_messages_reproduce_nothing(shown: Callable[..., ReproducedProblem], reason: str) -> None:
    assert shown({("red", "2024-06"): reason, ("red", "2025-06"): reason}).red == {}


def test_a_problem_is_reproduced_on_other_sets_too(shown: Callable[..., ReproducedProblem]) -> None:
    """Rows name CPU sets; GPU results have other sets."""
    found = shown({("red", "2025-12+torch2.11.0+cu130"): MESSAGE, ("green", "2025-12+torch2.11.0+cu130"): ""})
    assert found.red == {"red": ("2025-12+torch2.11.0+cu130",)}
    assert found.green == {"green": ("2025-12+torch2.11.0+cu130",)}


def test_a_problem_is_not_reproduced_on_another_set_if_a_signature_explains_the_cell(
    shown: Callable[..., ReproducedProblem],
) -> None:
    cells = {("red", "2024-06"): MESSAGE, ("red", "2025-06"): MESSAGE}
    assert shown(cells, id="another").red == {"red": ("2024-06",)}
    unknown = "ValueError: nobody has heard of it"
    assert shown({("red", "2025-06"): unknown}, "nobody has heard", id="another").red == {"red": ("2025-06",)}


def test_a_blocked_cell_on_another_set_reproduces_nothing(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> None:
    problem = Problem(id="a", title="a", red=(Cells(case="red", sets=("2024-06",), shows="no such wheel"),))
    sets = [build_set("2024-06"), build_set("2025-06")]
    outcomes = [build_outcome("red", each.key, "blocked", reason="no such wheel") for each in sets]
    found = known_problems.match_problem(problem, grid(build_run(), sets, outcomes), sets, "cpu")
    assert found.red == {"red": ("2024-06",)}


def test_a_problem_that_waits_for_hardware_is_not_reproduced_by_its_message(
    shown: Callable[..., ReproducedProblem],
) -> None:
    waiting = (Cells(case="red", sets=(), shows="uniform dtype"),)
    assert shown({("red", "2024-06"): MESSAGE}, red=waiting, needs="eight GPUs").red == {}


def test_cells_for_gpus_reproduce_nothing_on_a_cpu(shown: Callable[..., ReproducedProblem]) -> None:
    on_gpus = (Cells(case="red", sets=("2024-06",), shows="uniform dtype", device="cuda"),)
    cells = {("red", "2024-06"): MESSAGE, ("red", "2025-06"): MESSAGE}
    assert shown(cells, red=on_gpus).red == {}
    assert shown(cells, red=on_gpus, device="cuda").red == {"red": ("2024-06", "2025-06")}


def test_a_green_cell_of_another_set_is_left_out(shown: Callable[..., ReproducedProblem]) -> None:
    assert shown({("red", "2024-06"): MESSAGE, ("green", "2025-06"): ""}).green == {}


def test_the_section_names_all_hardware_and_days(
    build_outcome: Callable[..., Outcome], shown: Callable[..., ReproducedProblem]
) -> None:
    one = shown({("red", "2024-06"): MESSAGE})
    later = build_outcome("red", hardware="cpu: other", started=datetime(2026, 12, 24, tzinfo=UTC))
    first = one.shown[0].model_copy(update={"hardware": "cpu: one", "started": datetime(2026, 11, 20, tzinfo=UTC)})
    reproduced = [
        known_problems.ReproducedProblem(problem=one.problem, shown=(each,), green_cells=()) for each in (later, first)
    ]
    assert known_problems.ran(reproduced) == "cpu: one; cpu: other, 2026-11-20 to 2026-12-24"
    assert known_problems.ran(reproduced[1:]) == "cpu: one, 2026-11-20"
    assert any("(cpu: one; cpu: other, 2026-11-20 to 2026-12-24)" in part for part in section(reproduced))


# --- what is published ------------------------------------------------------------------------------------------------


def test_problems_belong_to_the_given_sets_and_silent_ones_come_first() -> None:
    found = known_problems.reproduced_problems({"2025-06": pins("cpu")["2025-06"]}, device="cpu")
    silent = [each.problem.silent for each in found]
    assert any(silent)
    assert silent == sorted(silent, reverse=True)
    assert {outcome.set for each in found for outcome in (*each.shown, *each.green_cells)} == {"2025-06"}


def test_gpu_results_reproduce_problems_on_gpus() -> None:
    found = known_problems.reproduced_problems(pins("cuda"), device="cuda")
    assert {outcome.hardware.partition(":")[0] for each in found for outcome in (*each.shown, *each.green_cells)} == {
        "cuda"
    }
    assert any(each.problem.family for each in found)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_cell_reproduces_only_one_of_two_contrary_problems(device: str) -> None:
    """Accumulation doubled the trainer's loss in old versions and halved it in newer ones."""
    found = {each.problem.id: each for each in known_problems.reproduced_problems(pins(device), device=device)}
    doubles, halves = (
        {outcome.cell for outcome in found[name].shown} if name in found else set()
        for name in ("trainer-accumulation-doubles", "trainer-accumulation-halves")
    )
    assert doubles.isdisjoint(halves)
    assert bool(doubles and halves) == (device == "cpu")


def test_a_device_without_results_has_no_problems() -> None:
    assert known_problems.reproduced_problems(pins("cpu"), device="tpu") == ()
