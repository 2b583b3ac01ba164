"""Two traces of one case show the first module that differs, and which one is to blame."""

from __future__ import annotations

import math

import pytest

from cases.checks.module_traces import ModuleTrace, TraceEvent
from matrix.run.traces.module_comparison import allowed, first_difference, sketch_distance

FLOAT32 = 2.0**-24


def event(kind: str, name: str, number: float = 1.0, *, caller: str = "", values: str = "x=float32 (2,)") -> TraceEvent:
    return TraceEvent(kind, name, caller, (values,), ((number, number),), FLOAT32)


RIGHT = (
    event("input", "block"),
    event("input", "block.norm", caller="block"),
    event("weight", "block.norm"),
    event("output", "block.norm"),
    event("output", "block"),
)


def with_event(place: int, *events: TraceEvent) -> tuple[TraceEvent, ...]:
    return (*RIGHT[:place], *events, *RIGHT[place + 1 :])


@pytest.mark.parametrize(
    ("found", "kind", "module", "after"),
    [
        (with_event(4, event("output", "block", 2.0)), "output", "block", "block.norm"),
        (with_event(2, event("weight", "block.norm", 2.0)), "weight", "block.norm", "block.norm"),
        (with_event(1, event("input", "block.norm", 2.0, caller="block")), "input", "block", "block"),
        (with_event(0, event("input", "block", 2.0)), "input", "", ""),
        (with_event(2, event("weight", "block.norm", values="x=float32 (3,)")), "weight", "block.norm", "block.norm"),
        ((RIGHT[0], RIGHT[4]), "call", "block", "block"),
        ((RIGHT[0], event("input", "block.mlp", caller="block")), "call", "block", "block"),
        (RIGHT[:1], "call", "block", "block"),
        ((*RIGHT, event("input", "other")), "call", "", "block"),
        ((*RIGHT[:4], event("weight", "block.norm.extra")), "call", "block.norm", "block.norm"),
        ((*RIGHT[:3], TraceEvent("error", "block.norm")), "error", "block.norm", "block.norm"),
        ((*RIGHT[:3], TraceEvent("error", "")), "error", "", "block.norm"),
    ],
)
def test_the_module_that_is_to_blame_is_named(
    found: tuple[TraceEvent, ...], kind: str, module: str, after: str
) -> None:
    record = first_difference([ModuleTrace(0, 0, found)], [ModuleTrace(0, 0, RIGHT)], same_set=True)
    assert record is not None
    assert (record.kind, record.module, record.after, record.step) == (kind, module, after, 0)


@pytest.mark.parametrize(
    ("values", "kind", "module"), [("x=float32 (3,)", "weight", "block.norm"), ("x=float32 (2,)", "error", "")]
)
def test_a_model_that_cannot_be_loaded_names_the_module_with_other_shapes(values: str, kind: str, module: str) -> None:
    left = (TraceEvent("error", ""), event("weight", "block"), event("weight", "block.norm", 2.0, values=values))
    record = first_difference([ModuleTrace(0, 0, left)], [ModuleTrace(0, 0, RIGHT)], same_set=True)
    assert record is not None
    assert (record.kind, record.module) == (kind, module)


@pytest.mark.parametrize(
    "found",
    [
        with_event(1, event("input", "block.norm", 2.0, caller="block", values="y=float32 (2,)")),
        with_event(2, event("weight", "block.norm", 2.0, values="x=float32 (3,)")),
        (RIGHT[0], event("input", "block.rotary", caller="block"), *RIGHT[2:]),
        RIGHT[:3],
    ],
)
def test_what_another_version_calls_otherwise_is_not_compared(found: tuple[TraceEvent, ...]) -> None:
    traces = [ModuleTrace(0, 0, found)], [ModuleTrace(0, 0, RIGHT)]
    assert first_difference(*traces, same_set=True) is not None
    assert first_difference(*traces, same_set=False) is None


def test_numbers_and_errors_are_compared_with_another_version() -> None:
    other = event("input", "other")
    for last, kind, module in (
        (event("output", "block", 2.0), "output", "block"),
        (TraceEvent("error", "a"), "error", "a"),
    ):
        found = (other, *RIGHT[:4], last)
        record = first_difference([ModuleTrace(0, 0, found)], [ModuleTrace(0, 0, RIGHT)], same_set=False)
        assert record is not None
        assert (record.kind, record.module) == (kind, module)


def test_plain_values_of_another_version_may_differ() -> None:
    plain = [TraceEvent("input", "a", "", (f"depth={depth}",), ((),)) for depth in (1, 2)]
    traces = [[ModuleTrace(0, 0, (each,))] for each in plain]
    assert first_difference(*traces, same_set=False) is None
    record = first_difference(*traces, same_set=True)
    assert record is not None


def test_equal_traces_have_no_difference() -> None:
    assert first_difference([ModuleTrace(0, 0, RIGHT)], [ModuleTrace(0, 0, RIGHT)], same_set=True) is None


def test_the_earliest_stage_and_the_lowest_rank_come_first() -> None:
    wrong = with_event(4, event("output", "block", 2.0))
    found = [ModuleTrace(1, 0, wrong), ModuleTrace(0, 1, wrong), ModuleTrace(0, 0, RIGHT)]
    right = [ModuleTrace(stage, rank, RIGHT) for stage in (0, 1) for rank in (0, 1)]
    record = first_difference(found, right, same_set=True)
    assert record is not None
    assert record.rank == 1


def test_a_rank_without_a_counterpart_is_not_compared() -> None:
    assert first_difference([ModuleTrace(0, 1)], [ModuleTrace(0, 0, RIGHT)], same_set=True) is None


def test_another_set_may_round_otherwise() -> None:
    rounded = with_event(4, event("output", "block", 1 + 4 * FLOAT32))
    for same_set, is_off in ((True, True), (False, False)):
        record = first_difference([ModuleTrace(0, 0, rounded)], [ModuleTrace(0, 0, RIGHT)], same_set=same_set)
        assert (record is not None) is is_off
    assert allowed(RIGHT[0], 3) == pytest.approx(2 * allowed(RIGHT[0], 0))


@pytest.mark.parametrize(
    ("found", "expected", "off"),
    [
        ((2.0, 1.0, 1.0), (2.0, 1.0, 1.0), 0.0),
        ((2.0, 1.0, 3.0), (2.0, 1.0, 1.0), math.sqrt(2) / 2),
        ((3.0, 1.0, 1.0), (2.0, 1.0, 1.0), 0.5),
        ((math.nan, math.nan), (math.nan, math.nan), 0.0),
        ((math.nan, 1.0), (2.0, 1.0), math.inf),
        ((1.0, 1.0), (0.0, 0.0), math.inf),
        ((), (), 0.0),
    ],
)
def test_the_distance_of_sketches_is_relative(
    found: tuple[float, ...], expected: tuple[float, ...], off: float
) -> None:
    assert sketch_distance(found, expected) == pytest.approx(off)


def test_a_trace_survives_its_file() -> None:
    trace = ModuleTrace(1, 2, RIGHT)
    assert ModuleTrace.from_json(trace.to_json()) == trace
