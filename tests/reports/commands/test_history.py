"""Bad input of ``ftmatrix history``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("case", ["", "__", "2025-12__"])
def test_a_text_that_is_no_case_is_one_sentence(case: str, ftmatrix: Command) -> None:
    code, _, err = ftmatrix("history", "show", case)
    assert (code, err.count("\n")) == (2, 1)
    assert "neither a case nor a cell" in err
