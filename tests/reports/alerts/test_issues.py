"""One issue per cause, whatever GitHub answers, and wherever the process ends."""

from __future__ import annotations

import random
from typing import Any

import pytest

from reports.alerts.issue_text import state_in

TEMPORARY = (
    *("500", "502", "closed", "primary", "secondary", "after"),
    *("done-502", "done-slow", "done-closed", "done-truncated"),
)
Fixture = Any  # a builder of conftest.py


def red_sets(issue: dict[str, Any]) -> set[str]:
    state = state_in(issue["body"])
    assert state is not None
    return {cell.set for cell in state.cells}


def test_a_cause_gets_one_issue(desk: Fixture, document: Fixture) -> None:
    assert (desk.notify(document()), desk.notify(document()), desk.notify(document(night=25))) == ([], [], [])
    assert (len(desk.service.issues), desk.service.all_comments()) == (1, [])


def test_further_cells_are_commented_and_listed(desk: Fixture, document: Fixture, sets: Fixture) -> None:
    desk.notify(document())
    desk.notify(document({"cells": sets("2026-06", "2026-11")}, night=25))
    (comment,) = desk.service.all_comments()
    assert "Spread to 1 cell." in comment
    assert red_sets(desk.service.issues[0]) == {"2026-06", "2026-11"}


def test_green_cells_close_an_issue_and_red_ones_reopen_it(desk: Fixture, document: Fixture) -> None:
    for night, kind in enumerate(("regression", "fixed", "expired quarantine"), start=24):
        desk.notify(document({"kind": kind}, night=night))
        assert desk.service.open == ([] if kind == "fixed" else [1])
    assert [("Closed" in each, "came back" in each) for each in desk.service.all_comments()] == [
        (True, False),
        (False, True),
    ]


def test_an_issue_stays_open_until_its_last_cell_is_green(desk: Fixture, document: Fixture, sets: Fixture) -> None:
    desk.notify(document({"cells": sets("2026-06", "2026-11")}))
    desk.notify(document({"kind": "fixed"}, night=25))
    assert (desk.service.open, red_sets(desk.service.issues[0])) == ([1], {"2026-06"})
    desk.notify(document({"kind": "fixed", "cells": []}, night=26))
    assert desk.service.open == []


def test_a_cause_that_moves_gets_one_comment(desk: Fixture, document: Fixture, sets: Fixture) -> None:
    desk.notify(document())
    desk.notify(document({"kind": "fixed"}, {"cells": sets("2026-06")}, night=25))
    assert (len(desk.service.all_comments()), desk.service.open) == (1, [1])
    assert red_sets(desk.service.issues[0]) == {"2026-06"}


def test_an_issue_that_somebody_dismissed_is_not_reopened(desk: Fixture, document: Fixture) -> None:
    desk.notify(document())
    desk.service.issues[0].update(state="closed", state_reason="not_planned")
    desk.notify(document(night=25))
    assert (desk.service.open, desk.service.all_comments()) == ([], [])


def test_what_people_wrote_into_a_body_stays(desk: Fixture, document: Fixture, sets: Fixture) -> None:
    desk.notify(document())
    desk.service.issues[0]["body"] += "\nI am looking into it."
    desk.notify(document({"cells": sets("2026-06")}, night=25))
    assert "I am looking into it." in desk.service.issues[0]["body"]


def test_an_earlier_night_changes_nothing(desk: Fixture, document: Fixture) -> None:
    desk.notify(document(night=25))
    desk.notify(document({"kind": "fixed"}, night=24))
    assert (desk.service.open, desk.service.all_comments()) == ([1], [])


def test_issues_on_the_second_page_are_found(desk: Fixture, document: Fixture) -> None:
    desk.service.per_page = 2
    for _ in range(3):
        desk.service.add("of somebody else")
    desk.notify(document())
    (desk.folder / "journal.jsonl").unlink()
    desk.notify(document())
    assert len(desk.service.issues) == 4


def test_a_duplicate_is_closed_and_the_oldest_is_used(desk: Fixture, document: Fixture) -> None:
    desk.notify(document())
    desk.service.add(desk.service.issues[0]["body"])
    (desk.folder / "journal.jsonl").unlink()
    desk.notify(document())
    assert (len(desk.service.issues), desk.service.open) == (2, [1])
    assert "Duplicate of #1" in desk.service.all_comments()[0]


def test_a_pull_request_is_no_issue(desk: Fixture, document: Fixture) -> None:
    desk.notify(document())
    desk.service.issues[0]["pull_request"] = {}
    desk.notify(document({}, {"cause_id": "other"}, night=25))
    assert len(desk.service.issues) == 3


def test_an_issue_without_its_label_is_found_again(desk: Fixture, document: Fixture) -> None:
    desk.service.may_label = False
    (sentence,) = desk.notify(document())
    assert "did not get its label" in sentence
    desk.service.may_label = True
    assert desk.notify(document()) == []
    assert [each["labels"] for each in desk.service.issues] == [[{"name": "ftmatrix-alert"}]]


@pytest.mark.parametrize("fault", TEMPORARY)
@pytest.mark.parametrize("request_number", range(7))
def test_a_temporary_fault_neither_files_twice_nor_loses(
    desk: Fixture, document: Fixture, sets: Fixture, fault: str, request_number: int
) -> None:
    desk.service.faults = {request_number: fault}
    assert desk.notify(document()) == []
    assert desk.notify(document({"cells": sets("2026-06")}, night=25)) == []
    assert (len(desk.service.issues), len(desk.service.all_comments())) == (1, 1)
    assert red_sets(desk.service.issues[0]) == {"2026-06", "2026-11"}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("keep_journal", [False, True])
def test_a_crash_between_any_two_requests_neither_files_twice_nor_loses(
    desk: Fixture, document: Fixture, sets: Fixture, *, after: bool, keep_journal: bool
) -> None:
    """Ends the process at each request of three nights: the issue is created, spreads, and is closed."""
    nights = (
        document(),
        document({"cells": sets("2026-06")}, night=25),
        document({"kind": "fixed", "cells": sets("2026-06", "2026-11")}, night=26),
    )
    crashes = 0
    for night in range(3):
        for number in range(20):
            desk.service.issues, desk.service.comments = [], {}
            (desk.folder / "journal.jsonl").unlink(missing_ok=True)
            for earlier in nights[:night]:
                desk.notify(earlier)
            crashed = desk.crash(nights[night], number, after=after)
            if not keep_journal:
                (desk.folder / "journal.jsonl").unlink()
            assert desk.notify(nights[night]) == []
            assert (len(desk.service.issues), len(desk.service.all_comments())) == (1, night)
            assert desk.service.open == ([] if night == 2 else [1])
            crashes += crashed
            if not crashed:
                break
    assert crashes == 3 + 4 + 4


def test_random_faults_neither_file_twice_nor_lose(desk: Fixture, document: Fixture, sets: Fixture) -> None:
    for seed in range(25):
        draw = random.Random(seed)  # noqa: S311 - no secret
        desk.service.issues, desk.service.comments, desk.service.seen = [], {}, []
        (desk.folder / "journal.jsonl").unlink(missing_ok=True)
        desk.service.faults = {each: draw.choice(TEMPORARY) for each in range(60) if draw.random() < 0.3}
        first = document({}, {"cause_id": "second"})
        for _ in range(12):
            if draw.random() < 0.5:
                desk.crash(first, draw.randrange(8), after=draw.random() < 0.5)
            desk.notify(first)
        desk.service.faults = {}
        assert desk.notify(document({"cells": sets("2026-06")}, night=25)) == []
        assert (len(desk.service.issues), len(desk.service.all_comments())) == (2, 1)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("401", "set GITHUB_TOKEN to a new one"),
        ("403", "give it write access"),
        ("404", "finds no o/r"),
        ("410", "issues switched off"),
        ("422", "refuses the issue"),
        ("301", "has moved"),
        ("500", "answered 500, 6 times"),
        ("far", "limits the rate of requests"),
    ],
)
def test_a_refusal_is_one_sentence_without_the_token(
    desk: Fixture, document: Fixture, fault: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    desk.service.every = fault
    (sentence,) = desk.notify(document())
    assert words in sentence
    assert "\n" not in sentence
    assert desk.secret not in sentence + caplog.text + desk.stored() + "".join(desk.said)


def test_what_is_unsent_is_sent_by_the_next_call(desk: Fixture, document: Fixture) -> None:
    desk.service.every = "500"
    assert desk.notify(document())
    desk.service.every = ""
    assert desk.notify(document({"cause_id": "other"}, night=25)) == []
    assert len(desk.service.issues) == 2


def test_one_refused_issue_does_not_stop_the_others(desk: Fixture, document: Fixture) -> None:
    desk.service.faults = {2: "422"}
    (sentence,) = desk.notify(document({}, {"cause_id": "other"}))
    assert "refuses the issue" in sentence
    assert len(desk.service.issues) == 1


@pytest.mark.parametrize(("fault", "least"), [("primary", 15), ("secondary", 60), ("after", 7)])
def test_a_rate_limit_is_waited_for(desk: Fixture, document: Fixture, fault: str, least: float) -> None:
    desk.service.faults = {0: fault}
    assert desk.notify(document()) == []
    assert max(desk.clock.slept) >= least
