"""Repeats follow from how often the failure shows at the bad end."""

from __future__ import annotations

import pytest

from matrix.bisect.confidence import Ends, highest_flake_rate, missed_red, repeats_for
from matrix.bisect.state import State

GREEN, RED, OTHER = State.GREEN, State.RED, State.UNTESTABLE


@pytest.mark.parametrize(("rate", "repeats"), [(1.0, 1), (0.9, 2), (0.5, 7), (0.3, 13)])
def test_repeats_reach_99_percent(rate: float, repeats: int) -> None:
    assert repeats_for(rate) == repeats
    assert missed_red(rate, repeats) <= 0.01


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ((GREEN, GREEN), (RED, RED), ""),
        ((GREEN,) * 10, (RED, GREEN) * 5, ""),
        ((GREEN, RED), (RED, RED), "the good end shows the failure of the bad end in 1 of 2 runs"),
        ((GREEN, OTHER), (RED, RED), "the good end is green in only 1 of 2 runs"),
        ((GREEN,) * 10, (GREEN,) * 9 + (RED,), "the bad end is red in only 1 of 10 runs"),
        ((GREEN, GREEN), (GREEN, GREEN), "the bad end is red in none of 2 runs"),
    ],
)
def test_ends_that_cannot_be_told_apart_are_refused(
    good: tuple[State, ...], bad: tuple[State, ...], problem: str
) -> None:
    assert Ends(good=good, bad=bad).why_not == problem


def test_few_runs_without_a_flake_exclude_only_high_rates() -> None:
    assert highest_flake_rate(4) == pytest.approx(0.527, abs=0.001)
