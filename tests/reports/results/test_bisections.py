"""Recorded bisections are read again, replace earlier ones, and are drawn on one page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from matrix.errors import UserError
from reports.answers import knowledge
from reports.commands.runs.bisect_report import recorded
from reports.render import bisections_page
from reports.results import bisections

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.bisect.answer import BisectAnswer

PEFT: dict[str, Any] = {"package": "peft", "last_good": "0.17.1", "first_bad": "0.18.0", "first_bad_set": "x"}


def test_a_recorded_answer_replaces_an_earlier_one(tmp_path: Path, answer: Callable[..., BisectAnswer]) -> None:
    recorded(answer(PEFT, cells=30), tmp_path)
    second = answer(PEFT, cells=20, seconds=150.0)
    page = recorded(second, tmp_path).read_text(encoding="utf-8")
    assert bisections.load(tmp_path) == (second,)
    assert "1 bisection of cells" in page
    assert "median 2.5 minutes, at most 2.5" in page
    assert "| `2026-03__api-lora_trains` | `2025-12` | peft 0.18.0 | 20 | 2.5 |" in page


def test_a_folder_without_bisections_has_none_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert bisections.load(tmp_path) == ()
    (tmp_path / bisections.FOLDER).mkdir()
    (tmp_path / bisections.FOLDER / "x.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match=r"x\.json: not the answer of a bisection"):
        bisections.load(tmp_path)


def test_the_published_page_is_that_of_the_published_answers() -> None:
    page = knowledge.PUBLISHED / bisections_page.PAGE
    assert page.read_text(encoding="utf-8") == bisections_page.markdown(bisections.load(knowledge.PUBLISHED))
