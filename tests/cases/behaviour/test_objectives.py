"""Tests of the losses with numbers computed by hand."""

from __future__ import annotations

import math

import pytest

from cases.behaviour.preferences import objectives

LN3 = math.log(3)  # sigmoid(ln 3) = 3/4, sigmoid(-ln 3) = 1/4


def test_dpo_of_a_margin_is_the_log_odds() -> None:
    assert objectives.dpo(2 * LN3, 0.5) == pytest.approx(math.log(4 / 3))


def test_conservative_dpo_mixes_both_labels() -> None:
    expected = 0.9 * math.log(4 / 3) + 0.1 * math.log(4)
    assert objectives.conservative_dpo(LN3, 1.0, 0.1) == pytest.approx(expected)


def test_robust_dpo_removes_the_flipped_labels() -> None:
    expected = (0.9 * math.log(4 / 3) - 0.1 * math.log(4)) / 0.8
    assert objectives.robust_dpo(LN3, 1.0, 0.1) == pytest.approx(expected)


def test_robust_dpo_is_unbiased_under_flips() -> None:
    flipped = 0.8 * objectives.robust_dpo(0.7, 1.0, 0.2) + 0.2 * objectives.robust_dpo(-0.7, 1.0, 0.2)
    assert flipped == pytest.approx(objectives.dpo(0.7, 1.0))


@pytest.mark.parametrize(("margin", "expected"), [(1.0, 0.5), (2.0, 0.0), (3.0, 0.0), (-2.0, 2.0)])
def test_hinge_is_zero_beyond_its_margin(margin: float, expected: float) -> None:
    assert objectives.hinge(margin, 0.5) == expected


def test_ipo_pulls_the_margin_to_half_the_inverse_of_tau() -> None:
    assert objectives.ipo(1.0, 0.25) == 1.0
    assert objectives.ipo(2.0, 0.25) == 0.0


def test_kto_is_one_less_the_sigmoid_of_a_gain() -> None:
    assert objectives.kto(LN3 + 2.0, 2.0, 1.0, desirable=True) == pytest.approx(1 / 4)
    assert objectives.kto(LN3 + 2.0, 2.0, 1.0, desirable=False) == pytest.approx(3 / 4)


def test_bradley_terry_subtracts_the_margin() -> None:
    assert objectives.bradley_terry(LN3 + 1.0, 0.0, margin=1.0) == pytest.approx(math.log(4 / 3))


def test_centring_squares_the_sum_of_a_pair() -> None:
    assert objectives.centring(2.0, -0.5) == 2.25


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.1, 2.0, -2.2), (1.5, 2.0, -2.6), (0.5, 2.0, -1.0), (1.5, -2.0, 3.0), (0.5, -2.0, 1.6)],
)
def test_surrogate_clips_only_what_would_gain(ratio: float, advantage: float, expected: float) -> None:
    assert objectives.surrogate(math.log(ratio), advantage, 0.2, 0.3) == pytest.approx(expected)


def test_token_kl_is_zero_for_equal_policies_and_positive_otherwise() -> None:
    assert objectives.token_kl(-1.0, -1.0) == 0.0
    assert objectives.token_kl(0.0, math.log(2)) == pytest.approx(1 - math.log(2))


def test_advantages_have_the_mean_of_their_group() -> None:
    assert objectives.advantages([1.0, 3.0, 10.0, 10.0], 2, scaled=False, epsilon=0.0) == [-1.0, 1.0, 0.0, 0.0]


def test_scaled_advantages_are_divided_by_the_sample_deviation() -> None:
    found = objectives.advantages([0.0, 1.0, 2.0], 3, scaled=True, epsilon=1.0)
    assert found == pytest.approx([-0.5, 0.0, 0.5])
