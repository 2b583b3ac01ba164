"""The parts of calls about data that need no library: masks by hand, best-fit decreasing, bounds of documents."""

from __future__ import annotations

import pytest

from cases.behaviour.data import chat_templates, flattening, packing

OUT = -100


def test_only_what_the_assistant_says_is_learned_with_its_end_token() -> None:
    talk = (("user", (5,)), ("assistant", (6, 7)))
    assert chat_templates.ids_of(talk) == [101, 5, 2, 102, 6, 7, 2]
    assert chat_templates.learned(talk) == [OUT, OUT, OUT, OUT, 6, 7, 2]


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [((5, 2, 9), [9, 7]), ((6, 5, 4, 5), [10, 10]), ((3, 8, 7), [10, 8]), ((7, 6, 3), [10, 6])],
)
def test_a_document_goes_into_the_fullest_row_that_has_room(lengths: tuple[int, ...], rows: list[int]) -> None:
    assert sorted(packing.best_fit_decreasing(lengths, 10), reverse=True) == rows


def test_documents_begin_where_positions_restart() -> None:
    assert packing.bounds_of([0, 1, 2, 0, 0, 1]) == [3, 1, 2]
    assert packing.cut([5, 6, 7, 8, 9, 10], [3, 1, 2]) == [[5, 6, 7], [8], [9, 10]]


def test_no_token_is_in_two_documents() -> None:
    tokens = [token for document in packing.documents() for token in document]
    assert len(set(tokens)) == len(tokens) == sum(packing.LENGTHS)


def test_no_document_of_a_flattened_row_learns_its_first_token() -> None:
    assert flattening.labels(OUT) == [[OUT, 6, 7, OUT, 9, 10, 11, 12, OUT]]
