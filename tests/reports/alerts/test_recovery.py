"""Issues follow the cells that were green on a night, changed or not, and never a cell that was not run."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from reports.alerts.issue_text import state_in
from reports.alerts.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

Fixture = Any  # a builder of conftest.py


def red_sets(issue: dict[str, Any]) -> set[str]:
    state = state_in(issue["body"])
    assert state is not None
    return {cell.set for cell in state.cells}


@pytest.fixture
def two_cells(desk: Fixture, document: Fixture, sets: Fixture) -> Fixture:
    """A desk with one open issue, whose cells are of the sets 2026-06 and 2026-11."""
    desk.notify(document({"cells": sets("2026-06", "2026-11")}))
    return desk


def test_an_issue_is_closed_when_its_cells_are_green_without_a_change(two_cells: Fixture, document: Fixture) -> None:
    two_cells.notify(document(night=25, green=["2026-06", "2026-11"]))
    (issue,) = two_cells.service.issues
    assert (issue["state"], issue["state_reason"], red_sets(issue)) == ("closed", "completed", set())
    assert "Closed: green again." in two_cells.service.all_comments()[0]


def test_a_cell_that_was_not_run_keeps_its_issue_open(two_cells: Fixture, document: Fixture) -> None:
    two_cells.notify(document(night=25, green=["2026-06"]))
    assert (two_cells.service.open, red_sets(two_cells.service.issues[0])) == ([1], {"2026-11"})
    (comment,) = two_cells.service.all_comments()
    assert "1 cell turned green; 1 cell left." in comment


def test_cells_that_recover_on_several_nights_close_their_issue(two_cells: Fixture, document: Fixture) -> None:
    two_cells.notify(document(night=25, green=["2026-06"]))
    two_cells.notify(document(night=26, green=["2026-11"]))
    assert two_cells.service.open == []


@pytest.mark.parametrize(
    ("night", "device", "green"),
    [(25, "cuda", ["2026-06", "2026-11"]), (23, "cpu", ["2026-06", "2026-11"]), (25, "cpu", ["2025-06"])],
)
def test_other_devices_earlier_nights_and_other_cells_change_nothing(
    two_cells: Fixture, document: Fixture, night: int, device: str, green: list[str]
) -> None:
    two_cells.notify(document(night=night, green=green, device=device))
    assert (two_cells.service.open, two_cells.service.all_comments()) == ([1], [])


def test_cells_that_have_not_run_for_two_weeks_close_their_issue(two_cells: Fixture, document: Fixture) -> None:
    for night in range(25, 39):
        two_cells.notify(document(night=night, green=["2026-09"]))
    assert (two_cells.service.open, two_cells.service.all_comments()) == ([1], [])  # no comment in between
    assert "2 of them have not run since the night of 2026-11-25." in two_cells.service.issues[0]["body"]
    two_cells.notify(document(night=39, green=["2026-09"]))
    assert two_cells.service.open == []
    (comment,) = two_cells.service.all_comments()
    assert "Closed: 2 cells not run any more, and no other is red." in comment
    assert comment.count("`2026-11`") == 1  # the list of cells that are gone
    two_cells.notify(document(night=45))
    assert two_cells.service.open == [1]  # the same cause came back


def test_a_cell_that_runs_again_is_not_gone(two_cells: Fixture, document: Fixture) -> None:
    two_cells.notify(document(night=25, green=["2026-09"]))
    two_cells.notify(document(night=30, green=[], red=["2026-06"]))
    two_cells.notify(document(night=39, green=["2026-09"]))
    assert (two_cells.service.open, red_sets(two_cells.service.issues[0])) == ([1], {"2026-06"})
    assert "1 cell not run for 14 days; 1 cell left." in two_cells.service.all_comments()[0]


def test_nights_without_cells_of_the_device_or_without_a_list_make_no_cell_absent(
    two_cells: Fixture, document: Fixture
) -> None:
    body = two_cells.service.issues[0]["body"]
    two_cells.notify(document(night=25, green=["2026-09"], device="cuda"))
    two_cells.notify(document(night=26, green=["2026-09"], schema=1))
    assert two_cells.service.issues[0]["body"] == body


def test_a_cause_that_moves_and_recovers_gets_one_comment(two_cells: Fixture, document: Fixture, sets: Fixture) -> None:
    two_cells.notify(document({"cells": sets("2026-09")}, night=25, green=["2026-06", "2026-11"]))
    assert (two_cells.service.open, red_sets(two_cells.service.issues[0])) == ([1], {"2026-09"})
    (comment,) = two_cells.service.all_comments()
    assert "Spread to 1 cell; 2 cells turned green." in comment


def test_an_alert_about_some_cells_counts_all_green_ones(two_cells: Fixture, document: Fixture, sets: Fixture) -> None:
    fixed = {"kind": "fixed", "cells": sets("2026-06")}
    two_cells.notify(document(fixed, night=25, green=["2026-06", "2026-11"]))
    assert (two_cells.service.open, len(two_cells.service.all_comments())) == ([], 1)


def test_another_cause_on_a_cell_leaves_its_issue_open(two_cells: Fixture, document: Fixture) -> None:
    two_cells.notify(document({"kind": "red for another reason", "cause_id": "other"}, night=25, green=["2026-06"]))
    assert two_cells.service.open == [1, 2]
    assert red_sets(two_cells.service.issues[0]) == {"2026-11"}


def test_a_closed_issue_is_left_alone(two_cells: Fixture, document: Fixture) -> None:
    two_cells.service.issues[0].update(state="closed", state_reason="not_planned")
    two_cells.notify(document(night=25, green=["2026-06", "2026-11"]))
    assert two_cells.service.all_comments() == []


def test_an_issue_whose_list_somebody_damaged_is_not_closed(two_cells: Fixture, document: Fixture) -> None:
    body = two_cells.service.issues[0]["body"]
    two_cells.service.issues[0]["body"] = body.replace("<!-- ftmatrix-state", "<!-- ")
    two_cells.notify(document(night=25, green=["2026-06", "2026-11"]))
    assert two_cells.service.open == [1]


def test_one_refused_issue_does_not_keep_the_others_open(desk: Fixture, document: Fixture) -> None:
    desk.notify(document({}, {"cause_id": "other"}))
    desk.service.seen, desk.service.faults = [], {2: "422"}  # the comment on the first
    (sentence,) = desk.notify(document(night=25, green=["2026-11"]))
    assert "cells of the night 2026-11-25: issue 1: GitHub refuses the issue" in sentence
    assert desk.service.open == [1]
    assert desk.notify(document(night=25, green=["2026-11"])) == []
    assert desk.service.open == []


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_while_an_issue_is_closed_neither_loses_nor_repeats(
    desk: Fixture, document: Fixture, *, after: bool
) -> None:
    crashes = 0
    for number in range(10):
        desk.service.issues, desk.service.comments = [], {}
        (desk.folder / "journal.jsonl").unlink(missing_ok=True)
        desk.notify(document())
        crashes += desk.crash(document(night=25, green=["2026-11"]), number, after=after)
        assert desk.notify(document(night=25, green=["2026-11"])) == []
        assert (desk.service.open, len(desk.service.all_comments())) == ([], 1)
    assert crashes == 4  # the list of issues, that of comments, the comment, and the closing


def test_the_first_night_of_a_cause_is_remembered(desk: Fixture, document: Fixture) -> None:
    desk.channels["webhook"] = {"kind": "json"}
    desk.notify(document())
    desk.notify(document({"kind": "fixed", "first_seen": "2026-11-25"}, night=25))
    desk.service.issues.clear()
    desk.notify(document({"first_seen": "2026-11-27"}, night=27))
    assert [each["alerts"][0]["first_seen"] for each in desk.service.messages] == ["2026-11-24"] * 3
    assert "First seen: 2026-11-24" in desk.service.issues[0]["body"]


def test_a_message_leaves_the_green_cells_out(desk: Fixture, document: Fixture) -> None:
    desk.channels = {"webhook": {"kind": "json"}}
    desk.notify(document({}, green=["2026-06"]))
    desk.notify(document(night=25, green=["2026-06"]))
    assert [each["green"] for each in desk.service.messages] == [[]]


def test_a_journal_keeps_the_earliest_night(tmp_path: Path) -> None:
    for day in (25, 24, 26):
        journal = Journal.open(tmp_path / "journal.jsonl")
        journal.see("cause", date(2026, 11, day))
        journal.close()
    assert Journal.read(tmp_path / "journal.jsonl").seen == {"cause": date(2026, 11, 24)}
