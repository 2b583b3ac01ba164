"""Tests of the reports on a wrong cell whose deviation was located."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from cases.space.verdict import Verdict
from matrix.run.outcome import DeviationRecord, LocationRecord
from reports.render import junit, markdown, page
from reports.render.terminal import TerminalReport
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.overview import Overview
    from reports.results.grid import Grid

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]

FIRST = DeviationRecord(
    kind="output", name="model.norm", module="model.norm", step=1, rank=1, distance=0.5, allowed=1e-6, after="embed"
)
WORDS = "first off: output of `model.norm`, step 1, rank 1"


@pytest.fixture
def located(small: Run) -> Run:
    record, sets, outcomes = small
    location = LocationRecord(beginnings=(FIRST,), outputs={"embed": 0.0, "model.norm": 0.5})
    changed = [
        each.model_copy(update={"location": location}) if each.verdict is Verdict.WRONG else each for each in outcomes
    ]
    return record, sets, changed


def test_markdown_names_the_first_module(
    located: Run, build_overview: Callable[[Grid], Overview], later: datetime
) -> None:
    matrix = grid(*located)
    assert WORDS in markdown.markdown(located[0], matrix, build_overview(matrix), generated=later)


def test_the_terminal_names_the_first_module(located: Run, build_overview: Callable[[Grid], Overview]) -> None:
    console, matrix = Console(file=io.StringIO(), width=120, color_system=None), grid(*located)
    console.print(TerminalReport(record=located[0], grid=matrix, known=build_overview(matrix)))
    assert WORDS in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_junit_names_the_first_module(located: Run) -> None:
    assert WORDS in junit.junit(grid(*located))


def test_the_page_has_the_deviation_of_each_module(
    located: Run, build_overview: Callable[[Grid], Overview], later: datetime
) -> None:
    matrix = grid(*located)
    drawn = page.page(located[0], matrix, build_overview(matrix), generated=later)
    assert '"modules":[["embed",0.0,null],["model.norm",0.5,null]]' in drawn
