"""Tests of the bound on observed shares."""

from __future__ import annotations

import random

from cases.behaviour.dropout import masks


def test_a_bound_shrinks_with_the_root_of_the_number_of_draws() -> None:
    assert masks.bound(400) == masks.bound(100) / 2


def test_a_rarer_false_alarm_has_a_wider_bound() -> None:
    assert masks.bound(100, 1e-9) > masks.bound(100, 1e-6)


def test_fair_draws_lie_within_the_bound() -> None:
    draws = random.Random(0)  # noqa: S311 - no secret
    shares = [sum(draws.random() < 0.3 for _ in range(1000)) / 1000 for _ in range(100)]
    assert max(abs(share - 0.3) for share in shares) < masks.bound(1000)


def test_the_bound_is_close_enough_to_notice_a_rate_of_a_third() -> None:
    assert masks.bound(65536) < 1 / 3 - 0.3
