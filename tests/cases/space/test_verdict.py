"""Tests of verdicts and checks."""

from __future__ import annotations

import math

import pytest

from cases.space.verdict import RED, Verdict, at_least, at_most, equal, missed

NAN = math.nan


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_verdict_has_no_truth_value(verdict: Verdict) -> None:
    with pytest.raises(TypeError, match="compare it by name"):
        bool(verdict)


def test_verdicts_that_are_not_the_stacks_fault_are_not_red() -> None:
    assert not RED & {Verdict.PASS, Verdict.SKIP, Verdict.LOST, Verdict.BLOCKED}


@pytest.mark.parametrize(
    "check", [at_most("x", NAN, 1.0), at_most("x", 1.0, NAN), at_least("x", NAN, 1.0), equal("x", NAN, NAN)]
)
def test_nan_is_never_green(check: object) -> None:
    assert missed([check]) == [check]  # type: ignore[list-item]


@pytest.mark.parametrize("check", [at_most("x", 1.0, 1.0), at_least("x", 1.0, 1.0), equal("x", "a", "a")])
def test_a_value_equal_to_its_bound_passes(check: object) -> None:
    assert missed([check]) == []  # type: ignore[list-item]


def test_a_check_prints_its_bound() -> None:
    assert str(at_most("gradient", 0.0031234, 0.06)) == "gradient 0.00312 <= 0.06"
