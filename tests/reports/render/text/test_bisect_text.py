"""The answer of a bisection in words: several culprits break only together, and a commit may be a repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from matrix.bisect.answer import CommitRange
from reports.render.text.bisect_text import markdown_section, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.bisect.answer import BisectAnswer

    MakeAnswer = Callable[..., BisectAnswer]

PEFT: dict[str, Any] = {"package": "peft", "last_good": "0.18.0", "first_bad": "0.17.1", "first_bad_set": "x"}
TRANSFORMERS: dict[str, Any] = {**PEFT, "package": "transformers", "last_good": "4.57.6", "first_bad": "5.0.0"}
COMMITS: dict[str, Any] = {"last_good": "a" * 40, "first_bad": "b" * 40, "title": "Move the cache", "committed": "2025"}


def both(found: BisectAnswer) -> tuple[str, str]:
    return text(found, Path("run")), markdown_section(found)


def test_several_culprits_broke_the_cell_together(answer: MakeAnswer) -> None:
    for words in both(answer(PEFT, TRANSFORMERS)):
        assert "peft 0.17.1 together with transformers 5.0.0" in words


def test_packages_that_moved_along_are_named_as_in_a_comparison(answer: MakeAnswer) -> None:
    moved = {"click": ("", "8.5.1"), "fsspec": ("2024.2", "2025.1")}
    for words in both(answer({**PEFT, "moved_along": moved})):
        assert "also differs between them: click 8.5.1 added, fsspec 2024.2 -> 2025.1" in words


@pytest.mark.parametrize(
    ("repair", "expected"),
    [
        (False, "first bad commit: bbbbbbbbbbbb (2025) Move the cache"),
        (True, "repaired by a commit that the bad release lacks: aaaaaaaaaaaa (2025) Move the cache"),
    ],
)
def test_a_commit_broke_the_cell_or_repaired_it(answer: MakeAnswer, *, repair: bool, expected: str) -> None:
    commits = CommitRange(**COMMITS, repair=repair)
    for words in both(answer({**PEFT, "commits": commits})):
        assert expected in words


def test_an_answer_without_a_commit_says_why(answer: MakeAnswer) -> None:
    for words in both(answer(PEFT, no_commit="no tag of peft 0.18.0")):
        assert "o commit: no tag of peft 0.18.0" in words


def test_the_answer_says_what_the_release_changed_in_the_api(answer: MakeAnswer) -> None:
    api = "API of peft 0.18.0 -> 0.17.1: 1 name or parameter gone, e.g. peft.LoraConfig(r)"
    for words in both(answer({**PEFT, "api": api})):
        assert f"{api} (`ftmatrix map changes peft 0.18.0 0.17.1`)" in words
