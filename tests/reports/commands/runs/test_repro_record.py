"""The published record has the errors of the reproducers, and the digests of the present scripts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from cases.space.verdict import RED
from matrix.errors import UserError
from reports.answers.scripts.repro_cells import outcome_of
from reports.answers.scripts.symptom import SymptomKind
from reports.commands.runs import repro_record
from reports.commands.runs.repro_confirm import Confirmation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reports.answers.scripts.repro_script import Reproducer
    from reports.results.grid import Grid

    Make = Callable[[str], Reproducer]

CELL = "2026-11__train-lora-fsdp1-bf16"
OTHER = "2025-12__save_reload-vera-single-fp32"
SHOWN = repro_record.read().reproducers


def run(
    made: Reproducer, *, script_error: str = "ValueError: no: never", same: bool = True
) -> repro_record.ReproducerRun:
    found = Confirmation(
        same=same, script_error=script_error, cell_error="ValueError: no: never", log="", seconds=12.34
    )
    return repro_record.ran(made, found, hardware="cpu: test", now=datetime(2026, 11, 21, tzinfo=UTC))


def test_the_script_error_is_stored_as_type_and_message(make: Make) -> None:
    made = make(CELL)
    row = run(made)
    assert (row.set, row.case, row.error, row.message) == (*CELL.split("__"), "ValueError", "no: never")
    assert (row.lines, row.seconds, row.script) == (len(made.text.splitlines()), 12.3, repro_record.digest(made))


def test_the_newest_run_of_a_cell_replaces_the_others(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "reproducers.json"
    for row in (run(make(CELL), same=False), run(make(OTHER)), run(make(CELL))):
        repro_record.add(row, path)
    assert [(row.cell, row.same) for row in repro_record.read(path).reproducers] == [(OTHER, True), (CELL, True)]


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2, "reproducers": []}', '{"schema": 1, "reproducers": [{}]}'])
def test_another_document_is_not_overwritten(text: str, make: Make, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UserError, match="no record of reproducers"):
        repro_record.add(run(make(CELL)), path)
    assert path.read_text() == text


def test_an_unwritable_record_is_one_sentence(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        repro_record.add(run(make(CELL)), tmp_path / "missing" / "reproducers.json")


def test_ten_reproducers_of_four_sets_show_the_failures_of_their_cells() -> None:
    assert len(SHOWN) >= 10
    assert len({row.set for row in SHOWN}) >= 4
    assert [row.cell for row in SHOWN if not row.same] == []


def test_published_reproducers_show_several_kinds_of_symptoms(make: Make) -> None:
    kinds = {make(row.cell).symptom.kind for row in SHOWN}
    assert {SymptomKind.ERROR, SymptomKind.GRADIENT, SymptomKind.DISK, SymptomKind.RELOADED} <= kinds


@pytest.mark.parametrize("row", SHOWN, ids=lambda row: row.cell)
def test_the_recorded_script_is_the_present_one(row: repro_record.ReproducerRun, make: Make, published: Grid) -> None:
    assert outcome_of(row.cell, published).verdict in RED
    record = repro_record.PUBLISHED.relative_to(repro_record.PUBLISHED.parents[2])
    again = f"ftmatrix repro {row.cell} --check --record {record}"
    assert row.script == repro_record.digest(make(row.cell)), f"the script has changed since; run it again: {again}"
