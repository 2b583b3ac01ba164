"""Files of the site have safe names, and no data can leave its script."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from matrix.errors import UserError
from reports.site.writer import SiteWriter, breakable, file_name, inline_code

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["a/b", "../a", "a" * 300, "a b", "a\x00b", "\ud800", ".", "", "a%2e", "con:x"])
def test_a_name_that_is_no_file_name_gets_a_digest(name: str) -> None:
    file = file_name(name)
    assert "/" not in file
    assert not file.startswith(".")
    assert len(file) < 140
    assert file != name


def test_different_names_have_different_files() -> None:
    names = ["a/b", "a_b", "a b", "a" * 299, "a" * 300]
    assert len({file_name(name) for name in names}) == len(names)


def test_a_plain_name_stays() -> None:
    assert file_name("2026-11+torch2.11.0") == "2026-11+torch2.11.0"


def test_data_is_a_call_with_json(tmp_path: Path) -> None:
    value = {"a": "</script>\u2028'\"", "b": [1.5, None]}
    SiteWriter(tmp_path, {}).data("x", value)
    text = (tmp_path / "data" / "x.js").read_text(encoding="utf-8")
    assert text.startswith('ftm.register("x",')
    assert "\u2028" not in text
    assert json.loads(text.removeprefix('ftm.register("x",').removesuffix(");\n")) == value


def test_markup_in_text_is_escaped() -> None:
    assert breakable("a-<b>") == "a-<wbr>&lt;b&gt;"
    assert inline_code("use `<b>` now") == "use <code>&lt;b&gt;</code> now"
    assert inline_code("a `b") == "a `b"


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="choose another folder"):
        SiteWriter(tmp_path / "file", {}).text("a.html", "")
