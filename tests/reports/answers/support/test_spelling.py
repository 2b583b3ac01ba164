"""A suggestion is at most one or two errors away; another number is never suggested."""

from __future__ import annotations

import pytest

from reports.answers.support.spelling import closest, did_you_mean, distance
from reports.answers.support.vocabulary import WORDS


@pytest.mark.parametrize(("word", "meant"), [("qloar", "qlora"), ("gradient-checkpointng", "gradient-checkpointing")])
def test_a_slip_is_recognised(word: str, meant: str) -> None:
    assert meant in closest(word, WORDS)


@pytest.mark.parametrize("word", ["fsdp3", "int4", "fp8", "dpo", "cat", "quantum", "unsloth", "loras2"])
def test_another_word_gets_no_suggestion(word: str) -> None:
    assert did_you_mean(word, WORDS) == ""


@pytest.mark.parametrize(
    ("one", "other", "errors"), [("", "ab", 2), ("lora", "lora", 0), ("lroa", "lora", 1), ("dora", "lokr", 3)]
)
def test_the_distance_counts_errors(one: str, other: str, errors: int) -> None:
    assert distance(one, other) == distance(other, one) == errors
