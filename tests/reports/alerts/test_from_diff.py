"""The alerts of a comparison."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from matrix.run.outcome import ErrorRecord
from reports.alerts.alert import AlertKind
from reports.alerts.document import stored, validated
from reports.alerts.from_diff import alert_document
from reports.answers.diff.changes import DiffSide
from reports.answers.diff.compare import compare
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.diff.changes import ResultDiff

CASE, OTHER, SET = "train-lora-ddp-fp32", "train-lora-fsdp1-fp32", "2024-06"
TODAY = date(2030, 1, 1)
LOCKS = ({"peft": "0.20.0", "torch": "2.8.0", "idna": "3.0"}, {"peft": "0.21.0", "torch": "2.8.0", "idna": "3.1"})


@pytest.fixture
def compared(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., ResultDiff]:
    """Compare the verdicts of cases on a base and a new side; red ones have an error that no signature explains."""

    def side(verdicts: dict[str, str], lock: dict[str, str]) -> DiffSide:
        error = ErrorRecord(type="ValueError", message="no such thing")
        outcomes = [
            build_outcome(case, SET, each, **({} if each == "pass" else {"error": error}))
            for case, each in verdicts.items()
        ]
        matrix = grid(build_run(*(f"{SET}__{case}" for case in verdicts)), [build_set(SET)], outcomes)
        return DiffSide(name="x", device="cpu", hardware="cpu: test", matrix=matrix, locks={SET: lock})

    def made(base: dict[str, str], new: dict[str, str]) -> ResultDiff:
        return compare(side(base, LOCKS[0]), side(new, LOCKS[1]), [(SET, SET)], rows=[])

    return made


def alerts(diff: ResultDiff) -> Any:
    return alert_document(diff, today=TODAY).alerts


def test_cells_with_one_cause_are_one_regression(compared: Callable[..., ResultDiff]) -> None:
    (alert,) = alerts(compared({CASE: "pass", OTHER: "pass"}, {CASE: "fail", OTHER: "fail"}))
    assert alert.kind is AlertKind.REGRESSION
    assert {each.case for each in alert.cells} == {CASE, OTHER}


def test_a_green_cell_is_fixed_with_the_fingerprint_of_its_regression(compared: Callable[..., ResultDiff]) -> None:
    (red,) = alerts(compared({CASE: "pass"}, {CASE: "fail"}))
    (green,) = alerts(compared({CASE: "fail"}, {CASE: "pass"}))
    assert green.kind is AlertKind.FIXED
    assert green.alert.fingerprint == red.alert.fingerprint


def test_a_failure_without_a_suspect_lists_the_moved_packages_of_the_stack(
    compared: Callable[..., ResultDiff],
) -> None:
    (alert,) = alerts(compared({CASE: "pass"}, {CASE: "fail"}))
    assert [each.name for each in alert.moved] == ["peft"]
    assert "names no moved package" in alert.body


def test_a_quarantined_cell_raises_no_alert(compared: Callable[..., ResultDiff]) -> None:
    diff = compared({CASE: "pass"}, {CASE: "fail"})
    quarantined = replace(diff, changes=tuple(replace(each, quarantine="known") for each in diff.changes))
    assert alerts(quarantined) == ()


def test_the_document_can_be_read_again(compared: Callable[..., ResultDiff]) -> None:
    document = alert_document(compared({CASE: "pass"}, {CASE: "fail"}), today=TODAY)
    assert validated(stored(document), "here") == document


def test_the_night_of_a_comparison_without_outcomes_is_today(compared: Callable[..., ResultDiff]) -> None:
    assert alert_document(compared({}, {}), today=TODAY).night == TODAY
