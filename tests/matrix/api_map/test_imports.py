"""Predicted imports: what a set of versions misses, and under which conditions code runs."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Protocol

import pytest

from matrix.api_map.imports import ImportPrediction
from matrix.api_map.query import ApiMap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    class FakeIndex(Protocol):
        def add(self, package: str, version: str, sources: dict[str, str] | None, day: date) -> None: ...

    Predict = Callable[[str], list[str]]


OLD = {"transformers/__init__.py": "", "transformers/extra.py": "def helper(): pass\ndef other(): pass\n"}
NEW = {"transformers/__init__.py": "", "transformers/extra.py": "def other(): pass\n"}


@pytest.fixture
def predict(index: FakeIndex, updated: Callable[[FakeIndex, Path], object], tmp_path: Path) -> Predict:
    """Predict what ``import trl`` misses with transformers 6.1, which has no ``helper``, if trl has some source."""

    def missed(source: str) -> list[str]:
        index.add("transformers", "6.0.0", OLD, date(2025, 1, 1))
        index.add("transformers", "6.1.0", NEW, date(2025, 2, 1))
        index.add("trl", "2.0.0", {"trl/__init__.py": source}, date(2025, 1, 2))
        updated(index, tmp_path)
        api = ApiMap(tmp_path / "map")
        view = api.at({"transformers": "6.1.0", "trl": "2.0.0"})
        return [each.target for each in ImportPrediction(api=api, view=view).import_name("trl")]

    return missed


HELPER = "from transformers.extra import helper\n"
MISSED = ["transformers.extra.helper"]


def test_an_import_of_a_name_that_is_gone_breaks(predict: Predict) -> None:
    assert predict(HELPER) == MISSED


def test_an_import_of_a_name_that_is_there_does_not(predict: Predict) -> None:
    assert predict("from transformers.extra import other\n") == []


def test_a_name_that_no_release_has_says_nothing(predict: Predict) -> None:
    assert predict("from transformers.extra import made_at_run_time\n") == []


@pytest.mark.parametrize(
    "source",
    [
        f"try:\n    {HELPER}except ImportError:\n    pass\n",
        f"def function():\n    {HELPER}",
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {HELPER}",
        f"import transformers\nif version.parse(transformers.__version__) < version.parse('6.1'):\n    {HELPER}",
        f"if is_transformers_version('<', '6.1.0'):\n    {HELPER}",
        f"if is_deepspeed_available():\n    {HELPER}",
        f"if not is_transformers_available():\n    {HELPER}",
    ],
    ids=[
        "handled",
        "in a function",
        "typing",
        "version check",
        "version function",
        "unknown package",
        "absent package",
    ],
)
def test_code_that_does_not_run_breaks_nothing(predict: Predict, source: str) -> None:
    assert predict(source) == []


@pytest.mark.parametrize(
    "source",
    [
        f"if is_transformers_available():\n    {HELPER}",
        f"if is_transformers_version('>=', '6.1.0'):\n    {HELPER}",
        f"try:\n    {HELPER}except ImportError as error:\n    raise RuntimeError from error\n",
    ],
    ids=["available", "version", "raised again"],
)
def test_code_under_a_condition_that_holds_breaks(predict: Predict, source: str) -> None:
    assert predict(source) == MISSED


def test_an_attribute_in_a_class_body_breaks(predict: Predict) -> None:
    assert predict("import transformers.extra\nclass C:\n    x = transformers.extra.helper\n") == MISSED
