"""Tests of the location that a run stores from what ranks measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.runtime.deviations import Deviation, RankDeviations, file_name
from matrix.run import location

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
