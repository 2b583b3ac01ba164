"""Finds the lines of a log that report a failure: tracebacks and exceptions, but no warnings and retried errors.

The search works on lines, because pasted logs lose parts of their tracebacks and mix the lines of ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TAIL: Final = 12  # lines of a message after its first one; those that are indented are not counted
AROUND: Final = 3  # lines beside one that stands alone

FRAME: Final = re.compile(
    r"^\s*File \S.*?(?:, line |:)\d+|^.{0,200}Traceback \(most recent call last\)|^\s*Cell In ?\["
)
CHAIN: Final = re.compile(r"During handling of the above exception|The above exception was the direct cause")
NAMED: Final = re.compile(
    r"(?<![\w./])(?<!except )(?:\w+\.)*(?:\w*(?:Error|Exception)|KeyboardInterrupt|SystemExit|StopIteration)"
    r"(?::(?:\s|$)|$)|^\s*what\(\): |\bFatal Python error\b"
)
UNNAMED: Final = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?::\s|$)")  # what ends a traceback is an exception, whatever its name
TOLD: Final = re.compile(r"^.{0,80}(?<![=\w])(?:WARNING|WARN|INFO|DEBUG)\b|^.{0,300}Warning: |^[WI]\d{4} ")
RETRIED: Final = re.compile(r"\b(?:retry(?:ing)?|retries|trying again|attempt \d+|falling back)\b", re.IGNORECASE)
GOES_ON: Final = re.compile(r"^\s*\{(?:eval_|train_)?loss: ?[\d.]")
OF_A_RANK: Final = re.compile(r"\bdistributed[/\\.]|\bc10d\b|\bNCCL\b|\bgloo\b", re.IGNORECASE)
LAUNCHES: Final = re.compile(r"\bdistributed[/\\](?:run|launch)\.py\b|\bcommands[/\\]launch\.py\b")
LAUNCHER: Final = re.compile(r"ChildFailedError|CalledProcessError|KeyboardInterrupt|SystemExit|SignalException")
SETTLED: Final = re.compile(r"\b(?:fixed|solved|resolved|works? now|(?:is|are|was|were) gone)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Lines from the first frame, or the exception itself, to the end of the message."""

    lines: range
    launcher: bool


class LogFailures:
    """The lines of a log, and which of them tell of a failure."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        found = list(failures(lines))
        every = [each for each in found if not each.launcher]
        self.failed = bool(found)
        self.at = {number: each for each in standing(every, lines) for number in each.lines if not told(lines[number])}

    def counts(self, number: int) -> bool:
        """Whether the line may be the cause: where nothing is raised, any may be that is not said to be settled."""
        if self.at:
            return number in self.at
        if self.failed and told(self.lines[number]):
            return False
        return not any(SETTLED.search(line) for line in self.lines[max(0, number - 1) : number + 2])

    def traced(self, number: int) -> bool:
        """Whether its failure has a traceback."""
        failure = self.at.get(number)
        return failure is not None and any(FRAME.match(self.lines[each]) for each in failure.lines)

    def around(self, number: int) -> list[int]:
        """The lines of the same failure; where it has no traceback, a few beside it."""
        failure = self.at.get(number)
        own = [each for each in failure.lines if each in self.at] if failure else [number]
        if self.traced(number):
            return own
        beside = range(max(0, number - AROUND), min(len(self.lines), number + AROUND + 1))
        return sorted({*own, *(each for each in beside if each not in self.at)})


def told(line: str) -> bool:
    """It is a warning, or another line of a logger."""
    return TOLD.search(line) is not None


def raised(line: str) -> bool:
    """It names an exception, and is not of a logger, nor of somebody who says that it is fixed."""
    named = NAMED.search(line)
    return named is not None and not told(line) and not SETTLED.search(line[: named.start()])


def standing(found: Sequence[Failure], lines: Sequence[str]) -> Iterator[Failure]:
    """Without those that the run got over: it tried again, or trained on, and something else failed later."""
    for number, each in enumerate(found, start=1):
        if number == len(found) or not overcome(each, found[number], lines):
            yield each


def overcome(failure: Failure, later: Failure, lines: Sequence[str]) -> bool:
    """Of ranks, one goes on while another fails, and fails later for it."""
    if any(RETRIED.search(line) for line in lines[max(0, failure.lines.start - 1) : failure.lines.start]):
        return True
    if any(OF_A_RANK.search(lines[number]) for number in later.lines):
        return False
    return any(GOES_ON.match(line) for line in lines[failure.lines.start : later.lines.start])


def failures(lines: Sequence[str]) -> Iterator[Failure]:
    """Each once, in order. Of one that was raised while another was handled, both are one."""
    start, left = None, None  # ``left``: how many lines the message may still have; None before its first
    for number, line in enumerate(lines):
        if start is not None and left is not None and ends(line, left, lines[number - 2 : number]):
            yield failure(lines, start, number)
            start = None
        if FRAME.match(line):
            start, left = number if start is None else start, None
        elif raised(line) or (start is not None and left is None and UNNAMED.match(line)):
            start, left = number if start is None else start, TAIL
        elif left is not None and start is not None and not line.startswith((" ", "\t")):
            left -= 1
    if start is not None:
        yield failure(lines, start, len(lines))


def ends(line: str, left: int, before: Sequence[str]) -> bool:
    """Whether the line is no more of the message before it."""
    if FRAME.match(line):
        return not any(CHAIN.search(each) for each in before)
    return left == 0 or told(line)


def failure(lines: Sequence[str], start: int, stop: int) -> Failure:
    """A launcher's says that a rank has failed, and not why."""
    said = [line for line in lines[start:stop] if raised(line)]
    launches = bool(said) or any(LAUNCHES.search(line) for line in lines[start:stop])
    return Failure(lines=range(start, stop), launcher=launches and all(LAUNCHER.search(line) for line in said))
