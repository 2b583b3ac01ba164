"""Predicted imports against measured ones, on a sample of what is stored."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cases.imports.steps import IMPORTS
from matrix.api_map.measured import import_results
from matrix.api_map.measured.evaluation import evaluate, is_mispredicted
from matrix.api_map.query import ApiMap

if TYPE_CHECKING:
    from matrix.api_map.measured.import_results import MeasuredImports

SAMPLE = 30


@pytest.fixture(scope="module")
def packaged() -> ApiMap:
    return ApiMap()


@pytest.fixture(scope="module")
def sample() -> list[MeasuredImports]:
    return random.Random(0).sample(list(import_results.load()), SAMPLE)  # noqa: S311 - a sample, no secret


def test_stored_imports_break_as_predicted(packaged: ApiMap, sample: list[MeasuredImports]) -> None:
    found = evaluate(packaged, sample)
    assert found.broken > SAMPLE / 2, "the sample shows nothing of what breaks"
    assert (found.precision or 0) >= 0.98
    assert (found.recall or 0) >= 0.98


def test_a_result_whose_imports_are_turned_round_is_mispredicted(
    packaged: ApiMap, sample: list[MeasuredImports]
) -> None:
    right = next(each for each in sample if not is_mispredicted(packaged, each))
    for package in IMPORTS:
        step = f"import {package}"
        error = "" if right.errors[step] else "ImportError"
        assert is_mispredicted(packaged, replace(right, errors={**right.errors, step: error}))
