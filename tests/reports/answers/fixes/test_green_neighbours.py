"""Where nobody searched for a fix, what the same results show beside a red cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.suite import CASES
from reports.answers.fixes.green_neighbours import green_beside
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.fixes.green_neighbours import GreenNeighbour

RED, GREEN = "train-lora-fsdp1-use_orig_params_false-fp32", "train-lora-fsdp1-fp32"


@pytest.fixture
def beside(
    build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord], build_run: Callable[..., RunRecord]
) -> Callable[..., GreenNeighbour | None]:
    """Of a red cell, when another one ended with some verdicts."""

    def look(*verdicts: str, red: str = RED, on: str = "2024-06") -> GreenNeighbour | None:
        def outcome(case: str, key: str, verdict: str, repeat: int = 1) -> Outcome:
            return build_outcome(case, key, verdict, options=CASES[case].options.stated, repeat=repeat)

        shown = outcome(red, "2024-06", "fail")
        others = [outcome(GREEN, on, verdict, number) for number, verdict in enumerate(verdicts, start=1)]
        return green_beside(shown, grid(build_run(), [build_set("2024-06"), build_set("2024-09")], [shown, *others]))

    return look


def test_a_green_cell_that_differs_in_a_setting_is_named_as_no_fix_yet(beside: Callable[..., GreenNeighbour]) -> None:
    found = beside("pass")
    assert found.words == "not searched for; green beside it: use_orig_params=True instead of False"
    assert found.proof.startswith(f"2024-06__{GREEN}, green in these results on cpu: test")


@pytest.mark.parametrize("verdicts", [("fail",), ("skip",), ("lost",), ("pass", "fail"), ()])
def test_what_is_not_green_every_time_is_not_named(
    beside: Callable[..., GreenNeighbour], verdicts: tuple[str, ...]
) -> None:
    found = beside(*verdicts)
    assert (found.green, found.proof) == ("", "")
    assert found.words == "not searched for; nothing that differs in settings only was run green here"


def test_green_on_another_set_is_not_beside_it(beside: Callable[..., GreenNeighbour]) -> None:
    assert beside("pass", on="2024-09").green == ""


def test_a_use_of_the_interface_has_no_settings(beside: Callable[..., GreenNeighbour | None]) -> None:
    assert beside("pass", red="api-lora_trains") is None


def test_it_is_told_as_what_a_user_edits(
    beside: Callable[..., GreenNeighbour], build_outcome: Callable[..., Outcome], build_set: Callable[..., SetRecord]
) -> None:
    red = build_outcome(RED, verdict="fail", options=CASES[RED].options.stated)
    assert "+    use_orig_params=True," in beside("pass").edit(red, build_set())
