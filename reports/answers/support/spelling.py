"""Suggests the word that a user meant. A wrong suggestion is worse than none, so it must be very close."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST: Final = 4  # letters of a word that gets a suggestion
LONG: Final = 7  # letters of a word that may have two errors
SHOWN: Final = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean qlora?``, or nothing if no known word is close."""
    near = closest(word, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def closest(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words at the smallest distance, which is 1, or 2 for a long word.

    Words with other digits mean other things, as int4 and int8 do, and are never close.
    """
    if len(re.sub(r"[^a-z]", "", word)) < SHORTEST:
        return []
    limit = 2 if len(word) >= LONG else 1
    digits = re.findall(r"\d+", word)
    distances = {each: distance(word, each) for each in known if re.findall(r"\d+", each) == digits}
    least = min(distances.values(), default=limit + 1)
    return [each for each, far in distances.items() if far == least <= limit][:SHOWN]


def distance(one: str, other: str) -> int:
    """Return the number of insertions, deletions, replacements and swaps of neighbours between two words.

    This is the optimal string alignment distance: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance.
    """
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        now = [row]
        for column, opposite in enumerate(other, start=1):
            least = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != opposite))
            if row > 1 and column > 1 and (one[row - 2], letter) == (opposite, other[column - 2]):
                least = min(least, before[column - 2] + 1)
            now.append(least)
        before, last = last, now
    return last[-1]
