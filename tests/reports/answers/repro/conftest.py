"""Red cells of the published results, with their locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reports.answers import knowledge
from reports.answers.repro.cells import outcome_of, pins_of
from reports.answers.repro.script import Reproducer, reproducer

if TYPE_CHECKING:
    from collections.abc import Callable

    from reports.grid import Grid

    Make = Callable[[str], Reproducer]


@pytest.fixture(scope="session")
def published() -> Grid:
    return knowledge.load()


@pytest.fixture
def make(published: Grid) -> Make:
    def made(cell: str) -> Reproducer:
        outcome = outcome_of(cell, published)
        return reproducer(outcome, pins_of(outcome, published))

    return made
