from __future__ import annotations

import pytest

from cases.space.plural import counted


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (counted(0, "cell"), "0 cells"),
        (counted(1, "cell"), "1 cell"),
        (counted(2, "cell"), "2 cells"),
        (counted(1, "process", "processes"), "1 process"),
        (counted(3, "process", "processes"), "3 processes"),
    ],
)
def test_a_noun_agrees_with_its_number(found: str, text: str) -> None:
    assert found == text
