"""Repeats follow from how often the failure shows at the bad end."""

from __future__ import annotations

import random

import pytest

from matrix.bisect.confidence import ERROR, FLAKY_RUNS, LEAST_RED, Ends, FailureRate, highest_flake_rate
from matrix.bisect.state import State

GREEN, RED, OTHER = State.GREEN, State.RED, State.UNTESTABLE


@pytest.mark.parametrize(("red", "step", "repeats"), [(10, 1, 1), (9, 2, 5), (7, 3, 9), (5, 4, 16), (3, 8, 38)])
def test_repeats_follow_from_the_red_runs_of_the_bad_end(red: int, step: int, repeats: int) -> None:
    rate = FailureRate(red=red, runs=10)
    assert (rate.step_repeats, rate.repeats) == (step, repeats)
    assert rate.missed_red(repeats) <= ERROR


def test_a_red_candidate_passes_for_green_in_at_most_one_of_a_hundred_searches() -> None:
    """Draws a rate, the runs of the bad end and those of a candidate that is as red, as a search would see them."""
    draw = random.Random(7)  # noqa: S311 - a seed makes the test repeatable
    missed = searches = 0
    while searches < 20_000:
        rate = draw.random()
        red = sum(draw.random() < rate for _ in range(FLAKY_RUNS))
        if LEAST_RED <= red < FLAKY_RUNS:  # it flakes, and is not refused
            searches += 1
            repeats = FailureRate(red=red, runs=FLAKY_RUNS).repeats
            missed += all(draw.random() >= rate for _ in range(repeats))
    assert missed / searches <= ERROR


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
