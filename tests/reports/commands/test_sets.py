"""``ftmatrix sets`` lists the keys that other commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.versions import sets
from reports.render.text import sets_text

if TYPE_CHECKING:
    from collections.abc import Callable

    Command = Callable[..., tuple[int, str, str]]


def test_every_key_is_listed_whole(ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("sets")
    keys = {line.split()[0] for line in out.splitlines() if line.startswith("20")}
    assert code == 0
    assert {each.key for each in sets.load()} <= keys


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_width_cuts_a_key(width: int) -> None:
    known = sets.load()
    lines = list(sets_text.lines(known, width=width))
    assert all(any(line.split(" ")[0] == each.key for line in lines) for each in known)


def test_a_wide_terminal_gets_one_row_per_set() -> None:
    known = sets.load()
    (row,) = (line for line in sets_text.lines(known, width=200) if line.startswith(f"{known[0].key} "))
    assert all(version in row.split() for version in known[0].pins.values())


def test_a_narrow_table_is_no_wider_than_the_terminal() -> None:
    lines = list(sets_text.lines(sets.load(), width=100))
    assert max(map(len, lines[: lines.index("", 2)])) <= 100
