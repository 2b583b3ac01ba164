"""Tables of compressed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from matrix.api_map import columns
from matrix.api_map.tables import matching_lines
from matrix.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("module", "name", "detail")
ROWS = [("a", "x", "self\nseed=0"), ("a", "y", ""), ("a.b", "x", "self"), ("c", "", "")]


def written(path: Path) -> columns.ColumnFile:
    columns.write(path, COLUMNS, ROWS)
    return columns.ColumnFile(path)


def test_rows_are_read_by_module_as_they_were_written(tmp_path: Path) -> None:
    file = written(tmp_path / "a.zip")
    assert list(file.rows("a")) == [("x", "self\nseed=0"), ("y", "")]
    assert [(module, *row) for module, row in file.all_rows()] == ROWS
    assert list(file.rows("b")) == []


def test_a_group_ends_with_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "GROUP_ROWS", 1)
    file = written(tmp_path / "a.zip")
    assert file.group_ends == [2, 3, 4]
    assert [(module, *row) for module, row in file.all_rows()] == ROWS


def test_equal_rows_give_equal_files(tmp_path: Path) -> None:
    written(tmp_path / "a.zip")
    written(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_no_rows_are_a_table_without_modules(tmp_path: Path) -> None:
    columns.write(tmp_path / "a.zip", COLUMNS, [])
    assert columns.ColumnFile(tmp_path / "a.zip").places == {}


@pytest.mark.parametrize("content", [None, b"no archive"], ids=["missing", "damaged"])
def test_a_file_that_cannot_be_read_is_bad_input(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UserError, match="cannot be read"):
        list(columns.ColumnFile(tmp_path / "a.zip").rows("a"))


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("log\nTrainer.log\nlog", r"^log$", [0, 2]),
        ("log\nTrainer.log\nx", r"^\w+\.log$", [1]),
        ("\nlog", r"^log$", [1]),
        ("a.a\nb\na", r"(?:^|\.)a", [0, 2]),
        ("a\nb", r"c", []),
    ],
)
def test_lines_that_match_are_numbered(text: str, pattern: str, expected: list[int]) -> None:
    assert list(matching_lines(text, pattern)) == expected
