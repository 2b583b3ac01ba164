"""Tests of the tolerances, which follow from the coarsest format of a case."""

from __future__ import annotations

import math

import pytest

from cases.reference.tolerance import FACTORS, UNIT_ROUNDOFF, bound, roundoff, worst
from cases.space.options import Options

PLAIN = Options()


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
