"""Signatures explain nearly all published failures; the remaining ones are counted as unexplained."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from cases.space.verdict import RED
from reports.answers import knowledge
from reports.answers.diagnosis.diagnose import diagnose, symptom
from reports.results import stored_results
from reports.results.outcome_rows import whole

if TYPE_CHECKING:
    from pathlib import Path

    from reports.answers.diagnosis.diagnose import Diagnosis

UNEXPLAINED: Final = 0.1  # of the red cells of a version set, at most


@dataclass(frozen=True, kw_only=True)
class DiagnosedCell:
    """A red cell of a published document, with its diagnoses."""

    file: Path
    set: str
    diagnoses: tuple[Diagnosis, ...]


@pytest.fixture(scope="module")
def red_cells() -> list[DiagnosedCell]:
    return [
        DiagnosedCell(file=path, set=column.key, diagnoses=diagnose(symptom(whole(outcome), column.pins)))
        for path in stored_results.locate_all(knowledge.PUBLISHED)
        if (run := stored_results.read(path)) is not None
        for column in run.sets
        for outcome in run.counted
        if outcome.set == column.key and outcome.verdict in RED
    ]


def test_failures_of_the_default_profile_are_explained_on_every_set(red_cells: list[DiagnosedCell]) -> None:
    path = stored_results.locate(knowledge.PUBLISHED)
    of_default = [cell for cell in red_cells if cell.file == path]
    red = Counter(cell.set for cell in of_default)
    unexplained = Counter(cell.set for cell in of_default if not cell.diagnoses)
    assert red
    assert {
        name: unexplained[name] / total for name, total in red.items() if unexplained[name] / total >= UNEXPLAINED
    } == {}


def test_published_failures_are_explained(red_cells: list[DiagnosedCell]) -> None:
    unexplained = [cell for cell in red_cells if not cell.diagnoses]
    assert len(unexplained) < UNEXPLAINED * len(red_cells)


def test_no_red_cell_has_two_causes_that_fit_equally(red_cells: list[DiagnosedCell]) -> None:
    twice = [
        (first.signature.id, other.signature.id)
        for first, *others in (cell.diagnoses for cell in red_cells if cell.diagnoses)
        for other in others
        if other.rank == first.rank and other.lines == first.lines
    ]
    assert twice == []
