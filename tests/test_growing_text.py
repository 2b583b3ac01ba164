"""The check of linear time passes linear steps alone, and its texts have the sizes that it asks for."""

from __future__ import annotations

from itertools import count

import pytest

from tests.growing_text import UNITS, check_linear, text_of


@pytest.mark.parametrize("kind", UNITS)
def test_a_text_has_its_size_and_its_unit(kind: str) -> None:
    text = text_of(kind, 1000)
    assert len(text) == 1000
    assert text.startswith(UNITS[kind].partition("@")[0])


def test_the_lines_of_a_text_differ() -> None:
    lines = text_of("exceptions", 100_000).splitlines()
    assert len({*lines}) == len(lines) > 1000


def test_a_step_with_a_large_constant_part_is_linear() -> None:
    check_linear(lambda n: 100 + n, 1)


def test_a_quadratic_step_is_refused() -> None:
    with pytest.raises(AssertionError, match="101"):
        check_linear(lambda n: 100 + n**2, 1)


def test_a_run_beside_other_work_is_repeated() -> None:
    runs = count()
    check_linear(lambda n: 100 + n + (90 if next(runs) in (2, 5, 8) else 0), 1)  # three times the largest text
