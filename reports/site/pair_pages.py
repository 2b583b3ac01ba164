"""The page of the pairs: every two minor releases of two packages, with what is measured or read of them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from matrix.api_map.measured import import_results
from matrix.api_map.query import ApiMap
from reports.answers.pairs.pair_answers import PairStatus
from reports.answers.pairs.pair_grid import pair_grids

if TYPE_CHECKING:
    from reports.answers.pairs.pair_grid import GridCell, PairGrid
    from reports.site.writer import SiteWriter

# The style of the site's marks, and the sign in a cell, which tells them apart without colours.
LOOKS: Final = {
    PairStatus.IMPORTS: ("pass", "✓"),
    PairStatus.AT_USE: ("setting", "◐"),
    PairStatus.AT_IMPORT: ("fail", "✗"),
    PairStatus.NOT_MEASURED: ("unknown", "·"),
}

SHOWN_FIRST: Final = ("peft", "transformers")


def write(site: SiteWriter, api: ApiMap | None = None) -> None:
    """Write the page, and a data file for each two packages, which the page loads when they are chosen.

    Raises:
        UserError: the map or a file of the import matrix cannot be read.
    """
    found = pair_grids(api or ApiMap(), list(import_results.load()))
    grids = sorted(found, key=lambda grid: grid.packages != SHOWN_FIRST)
    for grid in grids:
        site.data(data_name(grid), grid_data(grid))
    site.page(
        "pairs.html",
        "pairs.html.j2",
        pairs=[(data_name(grid), grid.packages) for grid in grids],
        looks=[(status.value, *look) for status, look in LOOKS.items()],
    )


def data_name(grid: PairGrid) -> str:
    return f"pairs-{'-'.join(grid.packages)}"


def grid_data(grid: PairGrid) -> dict[str, Any]:
    """Return a grid with each text once: a row is a list of numbers of answers, one for each column."""
    answers: dict[GridCell, int] = {}
    rows = [[answers.setdefault(grid.cells[row, column], len(answers)) for column in grid.columns] for row in grid.rows]
    return {
        "packages": list(grid.packages),
        "rows": list(grid.rows),
        "columns": list(grid.columns),
        "cells": rows,
        "answers": [[each.status.value, each.because, each.proof] for each in answers],
    }
