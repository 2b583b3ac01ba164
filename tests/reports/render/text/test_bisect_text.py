"""The answer of a bisection in words: several culprits break only together, and a commit may be a repair."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cases.space.verdict import Verdict
from matrix.bisect.answer import BisectAnswer, Certainty, CommitRange, Culprit
from reports.render.text.bisect_text import markdown_section, text

PEFT: dict[str, Any] = {"package": "peft", "last_good": "0.18.0", "first_bad": "0.17.1", "first_bad_set": "x"}
TRANSFORMERS: dict[str, Any] = {**PEFT, "package": "transformers", "last_good": "4.57.6", "first_bad": "5.0.0"}
COMMITS: dict[str, Any] = {"last_good": "a" * 40, "first_bad": "b" * 40, "title": "Move the cache", "committed": "2025"}


def answer(*culprits: dict[str, Any], **other: Any) -> BisectAnswer:
    runs: dict[str, Any] = {"end_runs": 3, "repeats": 1, "boundary_runs": 3}
    sure = Certainty(**runs, flake_rate=0.0, highest_flake_rate=0.4, confidence=1.0)
    usual: dict[str, Any] = {
        "generated": datetime(2026, 11, 25, tzinfo=UTC),
        "case": "api-lora_trains",
        "good": "2025-12",
        "bad": "2026-03",
        "device": "cpu",
        "hardware": "cpu: test",
        "verdict": Verdict.FAIL,
        "failure": "ImportError: x",
        "differing": 40,
        "pins": {},
        "pins_base": "2025-12",
        "pins_green": True,
        "certainty": sure,
        "steps": (),
        "cells": 9,
        "seconds": 60.0,
    }
    found = tuple(Culprit(**each) for each in culprits)
    return BisectAnswer(culprits=found, **{**usual, **other})


def both(found: BisectAnswer) -> tuple[str, str]:
    return text(found, Path("run")), markdown_section(found)


def test_several_culprits_broke_the_cell_together() -> None:
    for words in both(answer(PEFT, TRANSFORMERS)):
        assert "peft 0.17.1 together with transformers 5.0.0" in words


def test_packages_that_moved_along_are_named_as_in_a_comparison() -> None:
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
def test_a_commit_broke_the_cell_or_repaired_it(*, repair: bool, expected: str) -> None:
    commits = CommitRange(**COMMITS, repair=repair)
    for words in both(answer({**PEFT, "commits": commits})):
        assert expected in words


def test_an_answer_without_a_commit_says_why() -> None:
    for words in both(answer(PEFT, no_commit="no tag of peft 0.18.0")):
        assert "o commit: no tag of peft 0.18.0" in words
