"""Tests of the words for where a cell first deviates."""

from __future__ import annotations

import math

import pytest

from matrix.run.outcome import DeviationRecord, LocationRecord
from reports.results.location_words import NOWHERE, location_details, location_words


def record(kind: str, name: str = "model.norm", *, module: str = "", step: int = 1) -> DeviationRecord:
    return DeviationRecord(
        kind=kind, name=name, module=module or name, step=step, rank=0, distance=0.5, allowed=0.1, after="embed"
    )


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (record("output"), "output of `model.norm`, step 1, rank 0"),
        (record("gradient", step=2), "gradient of the output of `model.norm`, step 2, rank 0"),
        (record("input", "a.o_proj", module="a"), "input of `a.o_proj`, computed in `a`, step 1, rank 0"),
        (record("weight", step=2), "weight `model.norm`, from step 2 on, rank 0"),
        (record("output", step=4), "output of `model.norm`, in evaluation, rank 0"),
    ],
)
def test_a_location_is_one_line(first: DeviationRecord, words: str) -> None:
    assert location_words(LocationRecord(beginnings=(first,))) == f"first off: {words}"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (record("output", step=0), "output of `model.norm`, rank 0"),
        (record("error", step=0), "an error in `model.norm`, rank 0"),
        (record("error", name="", step=0), "an error outside of modules, rank 0"),
        (record("call", name="a.b", module="a", step=0), "calls in `a`, of `a.b`, rank 0"),
    ],
)
def test_a_difference_from_another_stack_names_it(first: DeviationRecord, words: str) -> None:
    found = LocationRecord(beginnings=(first,), against="2026-03")
    assert location_words(found) == f"first unlike 2026-03: {words}"
    assert location_words(LocationRecord(against="2026-03")) == "no module differs from that of 2026-03"


@pytest.mark.parametrize(
    ("kind", "module", "words"),
    [
        ("function", "tall", "`Linear.merge` of peft/layer.py in `tall`"),
        ("error", "tall", "an error in `Linear.merge` of peft/layer.py in `tall`"),
        ("error", "", "an error in `Linear.merge` of peft/layer.py"),
        ("output", "tall", "`Linear.merge` of peft/layer.py, then output of `tall`"),
    ],
)
def test_a_function_is_named_with_its_file(kind: str, module: str, words: str) -> None:
    first = record(kind, module, step=0).model_copy(update={"function": "peft/layer.py Linear.merge", "module": module})
    found = LocationRecord(beginnings=(first,), against="the unchanged stack")
    assert location_words(found) == f"first unlike the unchanged stack: {words}, rank 0"


def test_a_difference_that_is_no_number_has_no_distance() -> None:
    first = record("error", step=0).model_copy(update={"distance": math.inf})
    details = location_details(LocationRecord(beginnings=(first,), against="2026-03"))["location"]
    assert details["lines"] == ["an error in `model.norm`, rank 0, after embed"]


def test_a_cell_that_was_not_located_has_no_words() -> None:
    assert (location_words(None), location_details(None)) == ("", {})


def test_a_cell_without_a_deviating_module_says_so() -> None:
    assert location_words(LocationRecord()) == NOWHERE


def test_a_page_has_a_line_for_each_pass_and_a_row_for_each_module() -> None:
    location = LocationRecord(beginnings=(record("output"),), outputs={"a": 0.1, "b": 0.2}, gradients={"b": 0.3})
    details = location_details(location)["location"]
    assert details["lines"] == ["output of `model.norm`, step 1, rank 0: differs by 0.5 (allowed: 0.1), after embed"]
    assert details["modules"] == [["a", 0.1, None], ["b", 0.2, 0.3]]
