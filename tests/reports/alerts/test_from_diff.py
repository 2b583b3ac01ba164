"""The alerts of a comparison."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Verdict
from matrix.keys import CellKey
from matrix.run.outcome import ErrorRecord
from reports.alerts.alert import AlertKind
from reports.alerts.document import stored, validated
from reports.alerts.from_diff import alert_document
from reports.answers.diff.changes import ChangeKind, DiffSide
from reports.answers.diff.compare import OTHER_HARDWARE, compare
from reports.answers.diff.quarantine import Quarantine, applied
from reports.answers.diff.quarantine_entry import QuarantineEntry
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.diff.changes import ResultDiff

CASE, OTHER, SET = "train-lora-ddp-fp32", "train-lora-fsdp1-fp32", "2024-06"
SKIPPED, RED = "train-lora-fsdp2-fp32", "train-dora-ddp-fp32"
TODAY = date(2030, 1, 1)
LOCKS = ({"peft": "0.20.0", "torch": "2.8.0", "idna": "3.0"}, {"peft": "0.21.0", "torch": "2.8.0", "idna": "3.1"})


@pytest.fixture
def compared(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> Callable[..., ResultDiff]:
    """Compare the verdicts of cases on a base and a new side; red ones have an error that no signature explains.

    Its message can follow the verdict, as in ``fail: no such thing``.
    """

    def outcome(case: str, text: str) -> Outcome:
        verdict, _, message = text.partition(": ")
        error = ErrorRecord(type="ValueError", message=message or "no such thing")
        return build_outcome(case, SET, verdict, **({} if verdict in {"pass", "skip"} else {"error": error}))

    def side(verdicts: dict[str, str], lock: dict[str, str]) -> DiffSide:
        outcomes = [outcome(*each) for each in verdicts.items()]
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


def test_a_cell_that_is_red_for_another_reason_is_an_alert_of_the_new_cause(
    compared: Callable[..., ResultDiff],
) -> None:
    (alert,) = alerts(compared({CASE: "fail: old"}, {CASE: "fail: new"}))
    assert (alert.kind, alert.gist) == (AlertKind.OTHER_REASON, "ValueError: new")
    assert alert.kind.is_red
    assert "Red before for another reason: unexplained: ValueError: old" in alert.body


def test_causes_that_differ_only_in_numbers_are_one_alert(compared: Callable[..., ResultDiff]) -> None:
    (alert,) = alerts(compared({CASE: "pass", OTHER: "pass"}, {CASE: "fail: rank 0", OTHER: "fail: rank 1"}))
    assert len(alert.cells) == 2


def test_all_cells_that_are_green_are_listed(compared: Callable[..., ResultDiff]) -> None:
    before = {CASE: "pass", OTHER: "fail", SKIPPED: "pass", RED: "pass"}
    after = {CASE: "pass", OTHER: "pass", SKIPPED: "skip", RED: "fail"}
    document = alert_document(compared(before, after), today=TODAY)
    assert document.green_cells("cpu") == {CellKey(SET, CASE), CellKey(SET, OTHER)}
    assert document.green_cells("cuda") == frozenset()


def test_a_cell_that_is_green_in_some_runs_or_on_other_hardware_is_not_listed(
    compared: Callable[..., ResultDiff],
) -> None:
    diff = compared({CASE: "pass", OTHER: "pass"}, {CASE: "pass", OTHER: "pass"})
    first, second = diff.changes
    assert first.new is not None
    flaky = replace(first, new=replace(first.new, runs=(Verdict.PASS, Verdict.FAIL)))
    elsewhere = replace(second, kind=ChangeKind.UNKNOWN, reason=OTHER_HARDWARE)
    assert alert_document(replace(diff, changes=(flaky, elsewhere)), today=TODAY).green == ()


def test_the_first_night_of_a_cause_comes_from_the_history(compared: Callable[..., ResultDiff]) -> None:
    nights = {
        (SET, CASE, "unexplained", "ValueError: rank 7"): date(2024, 1, 2),
        (SET, CASE, "unexplained", "ValueError: other"): date(2024, 1, 1),
        (SET, OTHER, "unexplained", "ValueError: rank 7"): date(2023, 1, 1),
    }
    diff = compared({CASE: "pass"}, {CASE: "fail: rank 3"})
    (alert,) = alert_document(diff, today=TODAY, red_nights=nights).alerts
    assert alert.first_seen == date(2024, 1, 2)


def quarantined(diff: ResultDiff, **other: Any) -> ResultDiff:
    """The comparison with one entry for all its cells."""
    usual = {"case": "*", "sets": "*", "device": "cpu", "kind": "red", "reason": "peft#1", "owner": "ann"}
    days = {"since": date(2026, 1, 1), "expires": date(2026, 12, 1)}
    entry = QuarantineEntry.model_validate({**usual, **days, **other})
    is_expired = entry.expires < date(2026, 11, 25)
    entries = Quarantine(expired=(entry,)) if is_expired else Quarantine(entries=(entry,))
    recent = {(SET, CASE): [frozenset({"pass"})] * 14}
    return applied(diff, entries, recent=recent)


EXPIRED = {"expires": date(2026, 11, 20)}


def test_a_quarantined_cell_that_is_red_for_another_reason_raises_no_alert(
    compared: Callable[..., ResultDiff],
) -> None:
    assert alerts(quarantined(compared({CASE: "fail: old"}, {CASE: "fail: new"}))) == ()


@pytest.mark.parametrize(
    ("entry", "kind", "title"),
    [
        ({}, AlertKind.KNOWN_GREEN, "Green, but in the quarantine: * on *, cpu, red (owner: ann)"),
        ({"kind": "flaky"}, AlertKind.STABLE, "Stable, but in the quarantine: * on *, cpu, flaky (owner: ann)"),
        (EXPIRED, AlertKind.KNOWN_GREEN, "Expired, and green, but in the quarantine: * on *, cpu, red (owner: ann)"),
    ],
)
def test_an_entry_that_is_no_longer_needed_is_an_alert(
    compared: Callable[..., ResultDiff], entry: dict[str, Any], kind: AlertKind, title: str
) -> None:
    (alert,) = alerts(quarantined(compared({CASE: "pass"}, {CASE: "pass"}), **entry))
    assert (alert.kind, alert.title, [each.case for each in alert.cells]) == (kind, title, [CASE])
    assert not alert.kind.is_red


@pytest.mark.parametrize("before", ["pass", "fail", "fail: old"])
def test_the_red_cells_of_an_expired_entry_are_an_alert_of_their_cause(
    compared: Callable[..., ResultDiff], before: str
) -> None:
    (alert,) = alerts(quarantined(compared({CASE: before}, {CASE: "fail"}), **EXPIRED))
    (regression,) = alerts(compared({CASE: "pass"}, {CASE: "fail"}))
    assert (alert.kind, alert.alert.fingerprint) == (AlertKind.EXPIRED, regression.alert.fingerprint)
    assert "quarantine expired on 2026-11-20: * on *, cpu, red (owner: ann)" in alert.body


def test_an_expired_entry_of_another_device_or_of_cells_that_did_not_run_raises_no_alert(
    compared: Callable[..., ResultDiff],
) -> None:
    assert alerts(quarantined(compared({CASE: "pass"}, {CASE: "pass"}), **EXPIRED, device="cuda")) == ()
    assert alerts(quarantined(compared({CASE: "pass"}, {CASE: "skip"}), **EXPIRED)) == ()


def test_the_document_can_be_read_again(compared: Callable[..., ResultDiff]) -> None:
    document = alert_document(compared({CASE: "pass"}, {CASE: "fail"}), today=TODAY)
    assert validated(stored(document), "here") == document


def test_the_night_of_a_comparison_without_outcomes_is_today(compared: Callable[..., ResultDiff]) -> None:
    assert alert_document(compared({}, {}), today=TODAY).night == TODAY
