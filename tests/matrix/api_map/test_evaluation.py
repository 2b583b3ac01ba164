"""Predicted imports against measured ones, on a sample of what is stored."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cases.imports.steps import IMPORTS
from matrix.api_map.measured import import_results
from matrix.api_map.measured.evaluation import evaluate, is_mispredicted
from matrix.api_map.query import ApiMap

if TYPE_CHECKING:
    from matrix.api_map.measured.import_results import MeasuredImports

ROOT = Path(__file__).parents[3]
SAMPLE = 30
# Names on which stored imports are predicted wrongly.
WRONG = ("transformers.HybridCache", "triton.ops.matmul_perf_model", "transformers.utils.hub.TRANSFORMERS_CACHE")


@pytest.fixture(scope="module")
def packaged() -> ApiMap:
    return ApiMap()


@pytest.fixture(scope="module")
def sample() -> list[MeasuredImports]:
    return random.Random(0).sample(list(import_results.load()), SAMPLE)  # noqa: S311 - a sample, no secret


def test_stored_imports_break_as_predicted_except_for_what_the_page_lists(
    packaged: ApiMap, sample: list[MeasuredImports]
) -> None:
    found = evaluate(packaged, sample)
    assert found.broken > SAMPLE / 2, "the sample shows nothing of what breaks"
    listed = (ROOT / "docs" / "api_map.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in listed for name in WRONG)
    last = re.compile("|".join(rf"\b{each.rpartition('.')[2]}\b" for each in WRONG))
    assert not [each for each in found.disagreements if not last.search(f"{each.measured} {each.predicted}")]


def test_a_result_whose_imports_are_turned_round_is_mispredicted(
    packaged: ApiMap, sample: list[MeasuredImports]
) -> None:
    right = next(each for each in sample if not is_mispredicted(packaged, each))
    for package in IMPORTS:
        step = f"import {package}"
        error = "" if right.errors[step] else "ImportError"
        assert is_mispredicted(packaged, replace(right, errors={**right.errors, step: error}))
