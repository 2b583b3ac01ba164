"""Draws what a reader of an answer must know about the question: what no result answers, and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def question_lines(not_measured: Sequence[str], notes: Sequence[str], *, rest: bool) -> list[str]:
    """Return the lines above an answer; ``rest`` tells that an answer for the rest of the question follows."""
    missing = [f"Not measured: {each}." for each in not_measured]
    follows = ["The answer is for the rest of the question:"] if missing and rest else []
    text = [*missing, *(f"Note: {each}" for each in notes), *follows]
    return [*text, ""] if text and rest else text
