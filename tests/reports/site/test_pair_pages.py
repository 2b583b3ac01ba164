"""The data of the page of the pairs."""

from __future__ import annotations

from reports.answers.pairs.pair_answers import PairStatus
from reports.answers.pairs.pair_grid import GridCell, PairGrid
from reports.site.pair_pages import LOOKS, data_name, grid_data

CELL = GridCell(status=PairStatus.IMPORTS, proof="measured")
GRID = PairGrid(packages=("a", "b"), rows=("1",), columns=("2", "3"), cells={("1", "2"): CELL, ("1", "3"): CELL})


def test_equal_answers_are_stored_once() -> None:
    data = grid_data(GRID)
    assert (data["cells"], data["answers"]) == ([[0, 0]], [["imports", "", "measured"]])


def test_every_status_has_a_look() -> None:
    assert set(LOOKS) == set(PairStatus)


def test_each_two_packages_have_a_file() -> None:
    assert data_name(GRID) == "pairs-a-b"
