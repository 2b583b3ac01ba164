"""The function to look into is the innermost with another result, or the caller of one that is given something else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cases.checks.function_traces import FunctionEvent
from cases.checks.module_traces import ModuleTrace
from matrix.run.traces import function_comparison
from matrix.run.traces.function_comparison import changed_function, first_function


def event(kind: str, function: str, digest: str = "same", **other: str) -> FunctionEvent:
    return FunctionEvent(kind, function, digest=digest, **other)


OUTER = event("call", "merge", module="q_proj")
INNER = event("call", "scale", module="q_proj", caller="merge", caller_module="q_proj")
INNER_ENDS = replace(INNER, kind="return")
OUTER_ENDS = replace(OUTER, kind="return")
RIGHT = [OUTER, INNER, INNER_ENDS, OUTER_ENDS]


def found(*events: FunctionEvent, right: Any = RIGHT) -> Any:
    record = first_function([ModuleTrace(0, 0, functions=events)], [ModuleTrace(0, 0, functions=tuple(right))])
    return None if record is None else (record.kind, record.function, record.module)


@pytest.mark.parametrize(
    ("events", "kind", "function"),
    [
        ([OUTER, INNER, replace(INNER_ENDS, digest="other"), replace(OUTER_ENDS, digest="other")], "function", "scale"),
        ([OUTER, replace(INNER, digest="other"), INNER_ENDS, OUTER_ENDS], "function", "merge"),
        ([OUTER, OUTER_ENDS], "function", "merge"),
        ([OUTER, INNER, INNER_ENDS, INNER, INNER_ENDS, OUTER_ENDS], "function", "merge"),
        ([OUTER, INNER, INNER_ENDS, replace(OUTER_ENDS, digest="other")], "function", "merge"),
        ([OUTER, INNER, replace(INNER, kind="raise"), replace(OUTER, kind="raise")], "error", "scale"),
        ([OUTER, INNER], "function", "scale"),
        ([OUTER, INNER, INNER_ENDS, OUTER_ENDS, INNER], "function", "merge"),
    ],
)
def test_the_first_event_that_differs_names_a_function(events: Any, kind: str, function: str) -> None:
    assert found(*events) == (kind, function, "q_proj")


def test_equal_traces_name_no_function() -> None:
    assert found(*RIGHT) is None


def test_a_call_from_outside_of_the_stack_names_no_function() -> None:
    assert found(replace(OUTER, digest="other"), *RIGHT[1:]) is None


def test_another_name_of_a_module_is_no_difference() -> None:
    assert found(replace(OUTER, module="Block()"), *RIGHT[1:]) is None


def test_traces_without_functions_name_none() -> None:
    assert first_function([ModuleTrace(0, 0)], [ModuleTrace(0, 0)]) is None


TIMED = replace(INNER_ENDS, digest="12:00")
LATER = replace(INNER_ENDS, digest="12:01")


@pytest.mark.parametrize(
    ("events", "again", "name"),
    [
        (RIGHT, RIGHT, ""),
        ([OUTER, INNER, LATER, OUTER_ENDS], RIGHT, "scale"),
        ([OUTER, INNER, TIMED, OUTER_ENDS], [OUTER, INNER, LATER, OUTER_ENDS], ""),  # no two runs have it
        ([OUTER, INNER, TIMED, replace(OUTER_ENDS, digest="other")], [OUTER, INNER, LATER, OUTER_ENDS], "merge"),
        ([OUTER, OUTER_ENDS], RIGHT, "merge"),
        ([replace(OUTER, digest="other"), *RIGHT[1:]], RIGHT, "merge"),  # called by code outside the stack
        (RIGHT, [OUTER, OUTER_ENDS], None),
        (RIGHT, [OUTER, OUTER_ENDS, INNER, INNER_ENDS], None),
    ],
)
def test_a_changed_value_is_one_that_two_right_runs_share(events: Any, again: Any, name: str | None) -> None:
    assert changed_function({(0, 0): events}, {(0, 0): RIGHT}, {(0, 0): again}) == name


def test_values_beyond_a_cut_trace_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_comparison, "MOST", len(RIGHT))
    assert changed_function({(0, 0): RIGHT}, {(0, 0): RIGHT}, {(0, 0): RIGHT}) is None


def test_a_rank_that_left_no_trace_is_not_compared() -> None:
    assert changed_function({}, {(0, 0): RIGHT}, {(0, 0): RIGHT}) is None
