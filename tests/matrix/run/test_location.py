"""Tests of the location that a run stores from what ranks measured."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from cases.runtime.deviations import Deviation, RankDeviations, file_name
from cases.space.case import Case
from cases.space.options import Options
from cases.space.verdict import Verdict
from matrix.run import location
from matrix.run.outcome import LocationRecord, Outcome

if TYPE_CHECKING:
    from pathlib import Path


def rank(number: int, *, off: float) -> RankDeviations:
    outputs = (Deviation("output", "a", 1, 0.0123456, 0.1), Deviation("output", "b", 1, off, 0.1))
    return RankDeviations(number, (*outputs, Deviation("gradient", "b", 1, off, 0.1)), ("rotary_emb",))


def test_a_location_names_the_first_of_each_pass() -> None:
    found = location.location([rank(0, off=0.0), rank(1, off=0.5)])
    assert [(each.kind, each.module, each.rank) for each in found.beginnings] == [
        ("output", "b", 1),
        ("gradient", "b", 1),
    ]


def test_the_curves_are_of_the_rank_that_is_off() -> None:
    found = location.location([rank(0, off=0.0), rank(1, off=0.5)])
    assert (found.outputs, found.gradients) == ({"a": 0.0123, "b": 0.5}, {"b": 0.5})


def test_a_clean_cell_has_curves_and_no_beginning() -> None:
    found = location.location([rank(0, off=0.0)])
    assert (found.beginnings, list(found.outputs), found.uncompared) == ((), ["a", "b"], 1)


def test_the_files_of_all_stages_are_read(tmp_path: Path) -> None:
    for stage in (0, 1):
        (tmp_path / file_name(stage, 0)).write_text(rank(0, off=0.0).to_json())
    assert location.read(tmp_path) == [rank(0, off=0.0)] * 2


def outcome(verdict: Verdict, *, repeat: int = 1, located: bool = False) -> Outcome:
    return Outcome(
        set="2026-11",
        case="train-lora-single-fp32",
        group="",
        why="",
        options={},
        verdict=verdict,
        repeat=repeat,
        location=LocationRecord() if located else None,
        started=datetime(2026, 11, 20, tzinfo=UTC),
        seconds=1.0,
    )


@pytest.mark.parametrize(
    ("options", "found", "choice", "wanted"),
    [
        (Options(), outcome(Verdict.WRONG), "wrong", True),
        (Options(), outcome(Verdict.PASS), "wrong", False),
        (Options(), outcome(Verdict.PASS), "all", True),
        (Options(), outcome(Verdict.FAIL), "all", False),
        (Options(), outcome(Verdict.WRONG, located=True), "wrong", False),
        (Options(), None, "wrong", False),
        (Options(torch_compile=True), outcome(Verdict.WRONG), "wrong", False),
        (Options(flow="api", call="a_call"), outcome(Verdict.WRONG), "wrong", False),
    ],
)
def test_the_chosen_cells_that_can_be_recorded_are_located_once(
    options: Options, found: Outcome | None, choice: str, *, wanted: bool
) -> None:
    assert location.is_wanted(Case("", "", options), found, choice) is wanted


def test_a_wrong_repeat_is_located_rather_than_a_later_green_one() -> None:
    outcomes = [outcome(Verdict.WRONG), outcome(Verdict.PASS, repeat=2)]
    (found,) = location.shown_outcomes(outcomes).values()
    assert found.verdict is Verdict.WRONG


def test_an_outcome_of_an_earlier_schema_has_no_location() -> None:
    stored = outcome(Verdict.WRONG).model_dump(mode="json", by_alias=True)
    del stored["location"]
    assert Outcome.model_validate({**stored, "schema": 3}).location is None
