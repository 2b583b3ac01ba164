"""The grid of every two minor releases, from the packaged map and from measurements."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from matrix.api_map.measured.import_results import MeasuredImports
from matrix.api_map.query import ApiMap
from reports.answers.pairs.pair_answers import READ, PairStatus
from reports.answers.pairs.pair_grid import GridCell, pair_grids, with_measurements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reports.answers.pairs.pair_grid import PairGrid

PAIR = ("peft", "transformers")
BREAKS = GridCell(status=PairStatus.AT_IMPORT, because="peft.peft_model imports it", missing="transformers.Name")
USES = GridCell(status=PairStatus.AT_USE, because="peft.tuners uses it", missing="transformers.Name")


@pytest.fixture(scope="module")
def grids() -> Mapping[tuple[str, str], PairGrid]:
    return {each.packages: each for each in pair_grids(ApiMap(), [])}


def measured(error: str = "") -> MeasuredImports:
    return MeasuredImports(
        versions={"peft": "0.17.1", "transformers": "5.1.0"},
        errors={"import peft": error, "import transformers": ""},
        python="3.11.7",
        torch="2.5.1",
        measured=datetime(2026, 11, 25, tzinfo=UTC),
    )


def test_a_pair_that_the_map_knows_to_break_names_module_and_name(grids: Mapping[tuple[str, str], PairGrid]) -> None:
    cell = grids[PAIR].cells["0.17.1", "5.1.0"]
    assert (cell.status, cell.proof) == (PairStatus.AT_IMPORT, READ)
    assert "transformers.HybridCache" in cell.because


def test_every_two_releases_have_a_cell(grids: Mapping[tuple[str, str], PairGrid]) -> None:
    assert all(len(each.cells) == len(each.rows) * len(each.columns) for each in grids.values())


def test_each_two_packages_have_one_grid(grids: Mapping[tuple[str, str], PairGrid]) -> None:
    assert len({frozenset(each) for each in grids}) == len(grids)


def test_without_measurements_nothing_is_said_to_import(grids: Mapping[tuple[str, str], PairGrid]) -> None:
    assert all(cell.status is not PairStatus.IMPORTS for grid in grids.values() for cell in grid.cells.values())


@pytest.mark.parametrize(
    ("read", "error", "status"),
    [
        (None, "", PairStatus.IMPORTS),
        (BREAKS, "", PairStatus.IMPORTS),
        (USES, "", PairStatus.AT_USE),
        (BREAKS, "ImportError: cannot import name 'Name' from 'transformers' [peft.peft_model]", PairStatus.AT_IMPORT),
        (None, "ImportError: cannot import name 'X' from 'transformers' [peft.peft_model]", PairStatus.AT_IMPORT),
        (None, "ModuleNotFoundError: No module named 'triton.ops' [bitsandbytes.triton]", PairStatus.NOT_MEASURED),
    ],
)
def test_a_measurement_goes_before_what_was_read(read: GridCell | None, error: str, status: PairStatus) -> None:
    found = with_measurements(read, [measured(error)], PAIR)
    assert found.status is status
    assert ("measured with Python 3.11.7" in found.proof) is (status is not PairStatus.NOT_MEASURED)
