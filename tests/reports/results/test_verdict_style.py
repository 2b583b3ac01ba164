from __future__ import annotations

from rich.cells import cell_len

from cases.space.verdict import Verdict
from reports.results.verdict_style import LOOKS, UNKNOWN, look


def test_every_verdict_has_a_look() -> None:
    assert set(LOOKS) == set(Verdict)


def test_an_unknown_cell_has_a_look_of_its_own() -> None:
    assert look(None) is UNKNOWN


def test_signs_tell_verdicts_apart_without_colour() -> None:
    signs = [shape.sign for shape in (*LOOKS.values(), UNKNOWN)]
    assert len(set(signs)) == len(signs)


def test_signs_are_one_column_wide() -> None:
    assert all(cell_len(shape.sign) == len(shape.sign) == 1 for shape in (*LOOKS.values(), UNKNOWN))


def test_words_are_the_verdicts_values() -> None:
    assert all(shape.word == verdict.value for verdict, shape in LOOKS.items())
