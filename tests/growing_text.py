"""Hostile texts of any length, and a check that the time of a step grows linearly with them."""

from __future__ import annotations

import time
from itertools import count, product
from string import ascii_lowercase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

COUNTER: Final = "@"  # in a unit: a word that differs each time, without digits, which readers of logs ignore
UNITS: Final[Mapping[str, str]] = {
    "one word": "x",
    "one line of spaces": " ",
    "one line of markup": "<img src=x onerror=alert(1)>&amp;</script>",
    "one line of ANSI sequences": "\x1b[31m",
    "one line of bidirectional overrides": "\u202e\u2066",
    "one line of quotes": "`'\"|",
    "one line of brackets": "([{<",
    "one line of separators": "-_.+=",
    "one line of paths": "/a",
    "one line of versions": "torch==2.8.0 ",
    "lines": "word @\n",
    "lines without end": "\r",
    "frames": '  File "/a/@.py", line 1, in @\n    @()\n',
    "exceptions": "ValueError: @\n",
    "tracebacks": 'Traceback (most recent call last):\n  File "/a/@.py", line 1, in @\nTypeError: @() got\n',
    "ranks": "[rank0]: @\n[rank1]: @\n",
    "log records": "2026-01-02 03:04:05,678 WARNING @: no @\n",
    "steps": "{'loss': 0.5, 'word': '@'}\n",
}
# With t(n) = a + b n, (t(4n) - t(n)) / (t(2n) - t(n)) is 3, whatever the constant part a is; with t(n) = a + b n^2 it
# is 5, and with n log n it is 3.1 for texts of a megabyte. The bound is between.
LARGEST_RATIO: Final = 4.0
NOISE_S: Final = 0.1  # of a processor: growth below it is none that a reader would notice
# Other work on the machine makes a run slower, never quicker, so the quickest of several runs counts. More runs are
# needed only beside much other work; no number of them makes the time of a quadratic step linear.
RUNS: Final = 2
MOST_RUNS: Final = 6


def words() -> Iterator[str]:
    """Yield different words of letters."""
    for length in count(1):
        yield from map("".join, product(ascii_lowercase, repeat=length))


def text_of(kind: str, size: int) -> str:
    """Return a text of so many characters: a unit again and again, with another word for each counter."""
    unit = UNITS[kind]
    if COUNTER not in unit:
        return (unit * (size // len(unit) + 1))[:size]
    parts: list[str] = []
    length = 0
    for word in words():
        parts.append(unit.replace(COUNTER, word))
        length += len(parts[-1])
        if length >= size:
            return "".join(parts)[:size]
    raise AssertionError("words never end")


def mixture(size: int) -> str:
    """Return a text of so many characters with all kinds one after the other."""
    return "\n".join(text_of(kind, size // len(UNITS)) for kind in UNITS)


def long_lines(size: int) -> str:
    """Return two lines of so many characters each: one of a word, and one of markup."""
    return f"{text_of('one word', size)}\n{text_of('one line of markup', size)}"


def processor_seconds(step: Callable[[], object]) -> float:
    began = time.process_time()
    step()
    return time.process_time() - began


def check_linear(seconds: Callable[[int], float], size: int) -> None:
    """Measure a step for texts of a size, twice and four times the size, and compare how much time they add.

    Raises:
        AssertionError: the time grows faster than the text.
    """
    sizes = (size, 2 * size, 4 * size)
    quickest = [float("inf")] * len(sizes)
    for run in range(1, MOST_RUNS + 1):
        quickest = [min(known, seconds(n)) for known, n in zip(quickest, sizes, strict=True)]
        if run >= RUNS and is_linear(*quickest):
            return
    raise AssertionError(f"{', '.join(f'{each:.2f} s' for each in quickest)} for {sizes}")


def is_linear(one: float, two: float, four: float) -> bool:
    """Tell if the times for a size, twice and four times the size grow with it."""
    return four - one <= LARGEST_RATIO * max(two - one, NOISE_S)
