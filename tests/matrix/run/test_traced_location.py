"""Cells that no reference locates are compared with the same cell where it passes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from cases.checks import function_traces
from cases.checks.function_traces import FunctionEvent
from cases.checks.module_traces import MOST, ModuleTrace, TraceEvent
from cases.injection.mutant_suite import mutated_case, unchanged
from cases.space.case import Case
from cases.space.options import Options
from cases.space.verdict import Verdict
from matrix.run import traced_location
from matrix.run.execute import Suite
from matrix.run.location import VERDICTS
from matrix.run.outcome import DeviationRecord, LocationRecord, Outcome
from matrix.versions.sets import VersionSet

CALL = Case("", "", Options(flow="api", call="a_call"))
TRAINING = Case("", "", Options())
FIRST = DeviationRecord(kind="output", name="a", module="a", step=1, rank=0, distance=1.0, allowed=0.1)
OLD, MIDDLE, NEW = (
    VersionSet(key=f"2026-{month:02}", python="3.11", as_of=date(2026, month, 1), pins={}, why="")
    for month in (1, 6, 11)
)


def outcome(verdict: Verdict, version_set: str = NEW.key, location: LocationRecord | None = None) -> Outcome:
    return Outcome(
        set=version_set,
        case=CALL.id,
        group="",
        why="",
        options={},
        verdict=verdict,
        location=location,
        started=datetime(2026, 11, 20, tzinfo=UTC),
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("case", "found", "choice", "wanted"),
    [
        (CALL, outcome(Verdict.WRONG), "wrong", True),
        (CALL, outcome(Verdict.FAIL), "wrong", False),
        (CALL, outcome(Verdict.FAIL), "red", True),
        (CALL, outcome(Verdict.PASS), "all", False),
        (CALL, None, "red", False),
        (TRAINING, outcome(Verdict.FAIL), "red", True),
        (TRAINING, outcome(Verdict.WRONG, location=LocationRecord(beginnings=(FIRST,))), "red", False),
        (TRAINING, outcome(Verdict.WRONG, location=LocationRecord()), "red", True),
        (TRAINING, outcome(Verdict.WRONG, location=LocationRecord(against=OLD.key)), "red", False),
        (Case("", "", Options(flow="script", call="mine")), outcome(Verdict.FAIL), "red", False),
        (Case("", "", Options(torch_compile=True)), outcome(Verdict.FAIL), "red", False),
    ],
)
def test_red_cells_without_a_location_are_compared(
    case: Case, found: Outcome | None, choice: str, *, wanted: bool
) -> None:
    assert traced_location.is_wanted(case, found, VERDICTS[choice]) is wanted


@pytest.mark.parametrize(("passing", "right"), [([OLD, MIDDLE], MIDDLE), ([OLD], OLD), ([], None), ([OLD, NEW], OLD)])
def test_the_counterpart_is_the_nearest_set_on_which_the_cell_passes(passing: list[Any], right: Any) -> None:
    work: Any = [(each, [CALL]) for each in (OLD, MIDDLE, NEW)]
    shown = {(each.key, CALL.id): outcome(Verdict.PASS, each.key) for each in passing}
    red = outcome(Verdict.FAIL)
    shown[NEW.key, CALL.id] = red
    pair = traced_location.paired(CALL, red, NEW, work, shown, Suite())
    assert (pair.right if pair else None) == right


def test_a_mutated_cell_is_compared_with_the_unchanged_stack() -> None:
    suite = replace(Suite(), unchanged=unchanged)
    mutated = mutated_case(CALL, "m1")
    pair = traced_location.paired(mutated, outcome(Verdict.FAIL), NEW, [], {}, suite)
    assert pair is not None
    assert (pair.right, pair.counterpart) == (NEW, mutated_case(CALL, "none"))


@pytest.mark.parametrize(("calls", "found"), [(3, LocationRecord(against=OLD.key)), (MOST, None)])
def test_equal_traces_that_were_cut_locate_nothing(calls: int, found: LocationRecord | None) -> None:
    traces = [ModuleTrace(0, 0, (TraceEvent("input", "block"),) * calls)]
    assert traced_location.located(traces, traces, OLD.key) == found


def test_equal_records_of_functions_that_were_cut_locate_nothing() -> None:
    traces = [ModuleTrace(0, 0, functions=(FunctionEvent("call", "f"),) * function_traces.MOST)]
    assert traced_location.located(traces, traces, "") is None


def test_traces_that_differ_name_the_stack_that_is_right() -> None:
    found, right = ([ModuleTrace(0, 0, (TraceEvent("input", name),))] for name in ("block", "other"))
    location = traced_location.located(found, right, "")
    assert location is not None
    assert (location.against, [each.kind for each in location.beginnings]) == (traced_location.UNCHANGED, ["call"])


FUNCTION = FIRST.model_copy(update={"kind": "function", "function": "peft/a.py merge"})
OUTSIDE = FUNCTION.model_copy(update={"module": "", "name": ""})


@pytest.mark.parametrize(
    ("function", "difference", "wanted"),
    [
        (FUNCTION, FIRST, FUNCTION),
        (None, FIRST, FIRST),
        (FUNCTION, None, FUNCTION),
        (None, None, None),
        (OUTSIDE, FIRST, FIRST.model_copy(update={"function": "peft/a.py merge"})),
        (OUTSIDE, FIRST.model_copy(update={"kind": "error"}), OUTSIDE),
    ],
)
def test_a_function_outside_of_modules_has_the_first_module_that_differs(
    function: DeviationRecord | None, difference: DeviationRecord | None, wanted: DeviationRecord | None
) -> None:
    assert traced_location.joined(function, difference) == wanted
