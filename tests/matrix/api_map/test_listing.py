"""Lists of combinations: they can be moved, are split for processes, and lose nothing of an interrupted call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cases.imports.wire import LIBRARIES, Combination
from matrix.api_map.measured import listing
from matrix.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


def combination(base: str, folder: str = "", trl: tuple[str, ...] = ("1",)) -> Combination:
    return Combination(
        versions={"transformers": base}, folders=(f"{folder}/a",), variants=tuple((each, folder) for each in trl)
    )


def test_a_list_can_be_moved_with_its_wheels(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    listing.write(here / "list", [combination("4.46.3", str(here / "wheels"))])
    here.rename(there)
    assert listing.read(there / "list") == [combination("4.46.3", str(there / "wheels"))]


@pytest.mark.parametrize(
    ("text", "message"), [(None, "no list of combinations"), ("{}\n", "lists no combinations"), ("a", "lists no")]
)
def test_what_is_no_list_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "list"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        listing.read(path)


def test_what_was_imported_is_left_out() -> None:
    done = [{"transformers": "4.46.3", "trl": "1"}, {"transformers": "4.45.2", "trl": "2"}]
    every = [combination("4.46.3"), combination("4.45.2", trl=("1", "2"))]
    assert list(listing.without(every, done)) == [combination("4.45.2")]


def test_one_process_gets_all_in_their_order() -> None:
    every = [combination("2"), combination("1"), combination("2")]
    assert listing.shares(every, 1) == [every]


def test_each_share_has_one_transformers_and_a_largest_size() -> None:
    every = [combination(base) for base in ("2", "1") for _ in range(listing.LARGEST + 1)]
    found = listing.shares(every, 2)
    assert [len(each) for each in found] == [listing.LARGEST, listing.LARGEST, 1, 1]
    assert all(len({one.versions["transformers"] for one in each}) == 1 for each in found)


def test_results_of_shares_are_collected_without_a_line_that_was_cut(tmp_path: Path) -> None:
    results = tmp_path / "env.jsonl"
    results.write_text("a\n", encoding="utf-8")
    folder = results.with_suffix(listing.SHARES)
    folder.mkdir()
    (folder / "0.jsonl").write_text("b\nc\ncu", encoding="utf-8")
    (folder / "1.jsonl").write_text("cu", encoding="utf-8")
    (folder / "0.jsonl").with_suffix(LIBRARIES).write_text('{"numpy": "2.2.0"}', encoding="utf-8")
    listing.collect(results)
    assert results.read_text(encoding="utf-8") == "a\nb\nc\n"
    assert json.loads(results.with_suffix(LIBRARIES).read_text(encoding="utf-8")) == {"numpy": "2.2.0"}
    assert not folder.exists()
