"""Tests of the tolerances, which follow from the coarsest format of a case."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from cases.reference.tolerance import FACTORS, UNIT_ROUNDOFF, bound, over_sensitivity, roundoff, worst
from cases.reference.twin import Trajectory
from cases.space.options import Options

if TYPE_CHECKING:
    from cases.space.verdict import Check

PLAIN = Options()
U = UNIT_ROUNDOFF["bf16"]
HALF = PLAIN.but(torch_dtype="bf16")


@pytest.mark.parametrize(
    ("options", "coarsest"),
    [
        (PLAIN, "fp32"),
        (PLAIN.but(torch_dtype="bf16"), "bf16"),
        (PLAIN.but(autocast="fp16"), "fp16"),
        (PLAIN.but(torch_dtype="bf16", autocast="fp16"), "bf16"),
        (PLAIN.but(quant="int8", torch_dtype="fp16"), "int8"),
        (PLAIN.but(quant="nf4"), "fp32"),  # the twin holds the dequantised weights
    ],
)
def test_the_coarsest_format_decides(options: Options, coarsest: str) -> None:
    assert roundoff(options) == UNIT_ROUNDOFF[coarsest]


@pytest.mark.parametrize("kind", FACTORS)
def test_every_tolerance_detects_a_missing_all_reduce(kind: str) -> None:
    assert all(bound(kind, PLAIN.but(torch_dtype=dtype)) < 0.5 for dtype in ("fp32", "bf16", "fp16"))


def test_nan_is_the_worst_error() -> None:
    assert math.isnan(worst([1.0, math.nan, 2.0]))


def test_no_measurement_counts_as_infinitely_far() -> None:
    assert worst([]) == math.inf


def units(off: dict[str, float], known: dict[str, float], options: Options = HALF) -> Check:
    (check,) = over_sensitivity("weights", [off], Trajectory(sensitivities={"weights": [known]}), options)
    return check


def test_a_tensor_that_rounding_hardly_moves_has_a_smaller_bound() -> None:
    error = 5 * U
    assert error < bound("weights", HALF)
    assert units({"a": error}, {"a": 2.0}).ok
    assert not units({"a": error}, {"a": 1.0}).ok


def test_the_error_that_is_largest_for_its_tensor_counts() -> None:
    found = units({"robust": 3 * U, "sensitive": 6 * U}, {"robust": 1.0, "sensitive": 6.0})
    assert found.value == pytest.approx(3.0, rel=0.01)


def test_an_estimate_follows_the_coarsest_format() -> None:
    assert units({"a": U}, {"a": 1.0}).ok
    assert not units({"a": U}, {"a": 1.0}, PLAIN).ok


def test_a_missing_tensor_exceeds_every_sensitivity() -> None:
    assert not units({"a": math.inf}, {"a": 1e9}).ok


def test_a_tensor_that_does_not_move_still_has_the_roundoff_of_float32() -> None:
    assert units({"a": UNIT_ROUNDOFF["fp32"]}, {"a": 0.0}).ok


@pytest.mark.parametrize(
    "different",
    [{"quant": "int8", "torch_dtype": "bf16"}, {"optim": "adamw_8bit"}, {"method": "pissa"}, {"method": "loftq"}],
    ids=str,
)
def test_roundings_unlike_a_perturbation_have_no_estimate(different: dict[str, Any]) -> None:
    known = Trajectory(sensitivities={"weights": [{"a": 1.0}]})
    assert not [*over_sensitivity("weights", [{"a": 1.0}], known, PLAIN.but(**different))]


def test_a_stored_reference_without_estimates_leaves_the_arithmetic_bounds() -> None:
    assert not [*over_sensitivity("weights", [{"a": 1.0}], Trajectory(), HALF)]
