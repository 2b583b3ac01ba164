"""Green cells next to a red cell whose fix was not searched for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.suite import CASES
from reports.answers.fixes.green_neighbours import green_neighbour
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.fixes.green_neighbours import GreenNeighbour

RED, GREEN = "train-lora-fsdp1-use_orig_params_false-fp32", "train-lora-fsdp1-fp32"


@pytest.fixture
def neighbour_of(
    build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord], build_run: Callable[..., RunRecord]
) -> Callable[..., GreenNeighbour | None]:
    """Return the green neighbour of a red cell when another cell has some verdicts."""

    def find(*verdicts: str, red: str = RED, on: str = "2024-06") -> GreenNeighbour | None:
        def outcome(case: str, key: str, verdict: str, repeat: int = 1) -> Outcome:
            return build_outcome(case, key, verdict, options=CASES[case].options.stated, repeat=repeat)

        shown = outcome(red, "2024-06", "fail")
        others = [outcome(GREEN, on, verdict, number) for number, verdict in enumerate(verdicts, start=1)]
        return green_neighbour(shown, grid(build_run(), [build_set("2024-06"), build_set("2024-09")], [shown, *others]))

    return find


def test_a_green_cell_that_differs_in_a_setting_is_reported_as_unsearched(
    neighbour_of: Callable[..., GreenNeighbour],
) -> None:
    found = neighbour_of("pass")
    assert found.words == "not searched for; green with other settings: use_orig_params=True instead of False"
    assert found.proof.startswith(f"2024-06__{GREEN}, green in these results on cpu: test")


@pytest.mark.parametrize("verdicts", [("fail",), ("skip",), ("lost",), ("pass", "fail"), ()])
def test_a_cell_that_is_not_always_green_is_not_reported(
    neighbour_of: Callable[..., GreenNeighbour], verdicts: tuple[str, ...]
) -> None:
    found = neighbour_of(*verdicts)
    assert (found.green, found.proof) == ("", "")
    assert found.words == "not searched for; no cell that differs only in settings is green on this set"


def test_a_green_cell_of_another_set_is_no_neighbour(neighbour_of: Callable[..., GreenNeighbour]) -> None:
    assert neighbour_of("pass", on="2024-09").green == ""


def test_a_call_has_no_settings(neighbour_of: Callable[..., GreenNeighbour | None]) -> None:
    assert neighbour_of("pass", red="api-lora_trains") is None


def test_the_change_is_a_diff_of_the_users_files(
    neighbour_of: Callable[..., GreenNeighbour],
    build_outcome: Callable[..., Outcome],
    build_set: Callable[..., SetRecord],
) -> None:
    red = build_outcome(RED, verdict="fail", options=CASES[RED].options.stated)
    assert "+    use_orig_params=True," in neighbour_of("pass").edit(red, build_set())
