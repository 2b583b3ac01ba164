"""Errors as upstream threads quote them: the right cause comes first."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from matrix.known import THREAD
from reports.answers import signatures
from reports.answers.diagnose import Symptom, diagnose

REPORTED: Final[list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("reported_b.toml").read_text(encoding="utf-8")
)["reported"]
RIGHT: Final = 0.9  # of the reports; a line without its traceback does not tell some causes from their like


def first(symptom: str) -> str:
    return next((each.signature.id for each in diagnose(Symptom(text=symptom))), "unexplained")


def test_the_right_cause_comes_first_for_nine_in_ten() -> None:
    wrong = {row["id"]: first(row["symptom"]) for row in REPORTED if first(row["symptom"]) not in row["causes"]}
    assert len(wrong) <= (1 - RIGHT) * len(REPORTED), wrong


def test_the_expected_causes_are_signatures() -> None:
    assert {cause for row in REPORTED for cause in row["causes"]} <= {row.id for row in signatures.load()}


def test_a_report_names_its_thread_and_is_there_once() -> None:
    assert [row["id"] for row in REPORTED if not THREAD.fullmatch(row["thread"])] == []
    assert len({row["id"] for row in REPORTED}) == len(REPORTED)
