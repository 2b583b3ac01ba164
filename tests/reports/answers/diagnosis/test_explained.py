"""Signatures explain nearly all published failures; the remaining ones are counted as unexplained."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED
from reports.answers import knowledge
from reports.answers.diagnosis.diagnose import diagnose, symptom
from reports.results import document as data

if TYPE_CHECKING:
    from reports.results.document import MatrixDocument

UNEXPLAINED: Final = 0.1  # of the red cells of a version set, at most


def red_and_unexplained(document: MatrixDocument) -> tuple[Counter[str], Counter[str]]:
    """Return the numbers of red cells and of unexplained ones, by set."""
    pins = {column.key: column.pins for column in document.sets}
    red = [outcome for outcome in document.cells if outcome.verdict in RED]
    unexplained = [outcome.set for outcome in red if not diagnose(symptom(outcome, pins[outcome.set]))]
    return Counter(outcome.set for outcome in red), Counter(unexplained)


def test_failures_of_the_default_profile_are_explained_on_every_set() -> None:
    path = data.locate(knowledge.PUBLISHED)
    assert path is not None
    red, unexplained = red_and_unexplained(data.read(path))
    assert red
    assert {
        name: unexplained[name] / total for name, total in red.items() if unexplained[name] / total >= UNEXPLAINED
    } == {}


def test_published_failures_are_explained() -> None:
    totals = [red_and_unexplained(document) for document in knowledge.documents(knowledge.PUBLISHED)]
    assert sum(unexplained.total() for _, unexplained in totals) < UNEXPLAINED * sum(red.total() for red, _ in totals)


def test_no_red_cell_has_two_causes_that_fit_equally() -> None:
    diagnoses = [
        diagnose(symptom(outcome, column.pins))
        for document in knowledge.documents(knowledge.PUBLISHED)
        for column in document.sets
        for outcome in document.cells
        if outcome.set == column.key and outcome.verdict in RED
    ]
    twice = [
        (first.signature.id, other.signature.id)
        for first, *others in filter(None, diagnoses)
        for other in others
        if other.rank == first.rank and other.lines == first.lines
    ]
    assert twice == []
