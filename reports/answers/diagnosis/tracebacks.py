"""Finds the lines of a log that report a failure: tracebacks and exceptions, but no warnings and retried errors.

The search works on lines, because pasted logs lose parts of their tracebacks and mix the lines of ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reports.answers.diagnosis import frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MESSAGE_LINES: Final = 12  # lines that a message may have after its first one; indented lines do not count
CONTEXT_LINES: Final = 3  # lines of context on each side of a line without a traceback

FRAME: Final = re.compile(
    r"^\s*File \S.*?(?:, line |:)\d+|^.{0,200}Traceback \(most recent call last\)|^\s*Cell In ?\["
)
CHAIN: Final = re.compile(r"During handling of the above exception|The above exception was the direct cause")
EXCEPTION: Final = re.compile(
    r"(?<![\w./])(?<!except )(?:\w+\.)*(?:\w*(?:Error|Exception)|KeyboardInterrupt|SystemExit|StopIteration)"
    r"(?::(?:\s|$)|$)|^\s*what\(\): |\bFatal Python error\b"
)
# The line that ends a traceback names an exception, even if the name does not end in "Error".
LAST_LINE_OF_TRACEBACK: Final = re.compile(r"^(?:\w+\.)*[A-Z]\w*(?::\s|$)")
# A failure of a collective after another rank died; it says nothing about the cause.
LOST_PEER: Final = re.compile(
    r"DistBackendError|NCCL (?:error|communicator)|Connection (?:closed|reset) by peer|Watchdog caught|Broken pipe"
    r"|DistStoreError|DistNetworkError|monitoredBarrier|remote process exited"
)
WATCHDOG_RECORD: Final = re.compile(r"^\[?[EF]\d{3,4} .*ProcessGroup\w+\.cpp|^\[[EF]\d{3,4} ")
LOG_RECORD: Final = re.compile(r"^.{0,80}(?<![=\w])(?:WARNING|WARN|INFO|DEBUG)\b|^.{0,300}Warning: |^[WI]\d{4} ")
RETRY: Final = re.compile(r"\b(?:retry(?:ing)?|retries|trying again|attempt \d+|falling back)\b", re.IGNORECASE)
TRAINING_STEP: Final = re.compile(r"^\s*\{(?:eval_|train_)?loss: ?[\d.]")
COLLECTIVE: Final = re.compile(r"\bdistributed[/\\.]|\bc10d\b|\bNCCL\b|\bgloo\b", re.IGNORECASE)
LAUNCHER_FRAME: Final = re.compile(r"\bdistributed[/\\](?:run|launch)\.py\b|\bcommands[/\\]launch\.py\b")
LAUNCHER_EXCEPTION: Final = re.compile(
    r"ChildFailedError|CalledProcessError|KeyboardInterrupt|SystemExit|SignalException"
)
RESOLVED: Final = re.compile(r"\b(?:fixed|solved|resolved|works? now|(?:is|are|was|were) gone)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Lines from the first frame, or the exception itself, to the end of the message.

    ``launcher`` is true if a launcher reports only that a rank failed.
    """

    lines: range
    launcher: bool


@dataclass(frozen=True, kw_only=True)
class Death:
    """The traceback that ended the first rank that died: its frames, and the line that names the exception."""

    calls: tuple[frames.Frame, ...]
    message: str

    @property
    def culprit(self) -> frames.Frame | None:
        return frames.culprit(self.calls)

    @property
    def origin(self) -> frames.Origin:
        return frames.origin(self.calls)


class LogFailures:
    """The lines of a log and the failures in them. Log records inside a failure do not belong to it.

    ``ranks`` names the rank that wrote each line, or is empty where a line names none.
    """

    def __init__(self, lines: Sequence[str], ranks: Sequence[str] = ()) -> None:
        self.lines = lines
        every = list(find_failures(lines, ranks))
        self.any_failure = bool(every)
        of_ranks = [each for each in every if not each.launcher]
        lasting = list(unrecovered(of_ranks, lines))
        self.failures = first_deaths(lasting, lines, ranks)
        kept = {each.lines.start for each in lasting}  # a log may have thousands of failures
        self.recovered = frozenset(number for each in of_ranks if each.lines.start not in kept for number in each.lines)
        self.failure_at = {
            number: each for each in self.failures for number in each.lines if not is_log_record(lines[number])
        }

    @property
    def death(self) -> Death | None:
        """The traceback that ended the job; None if the log has none."""
        if not self.failures:
            return None
        block = self.traceback(self.failures[-1].lines[-1])
        named = [self.lines[number].strip() for number in block if names_exception(self.lines[number])]
        texts = [self.lines[number].strip() for number in block if self.lines[number].strip()]
        return Death(calls=self.calls(block[-1]), message=next(iter(named), texts[-1] if texts else ""))

    def traceback(self, number: int) -> range:
        """Return the lines of one traceback of a chain, with its message."""
        failure = self.failure_at.get(number)
        if failure is None:
            return range(number, number + 1)
        links = [each for each in failure.lines if CHAIN.search(self.lines[each])]
        start = max((each + 1 for each in links if each < number), default=failure.lines.start)
        return range(start, min((each for each in links if each > number), default=failure.lines.stop))

    def calls(self, number: int) -> tuple[frames.Frame, ...]:
        """Return the frames of the traceback of a line, outermost first."""
        own = (self.lines[each] for each in self.traceback(number) if each in self.failure_at)
        return tuple(frames.frames(own))

    def may_be_cause(self, number: int) -> bool:
        """Tell if a line may show the cause: a line of a failure, or any unresolved line if no failure was found."""
        if self.failure_at:
            return number in self.failure_at
        if self.any_failure and is_log_record(self.lines[number]):
            return False
        return not any(RESOLVED.search(line) for line in self.lines[max(0, number - 1) : number + 2])

    def has_traceback(self, number: int) -> bool:
        """Tell if the failure of a line has a traceback."""
        failure = self.failure_at.get(number)
        return failure is not None and any(FRAME.match(self.lines[each]) for each in failure.lines)

    def context(self, number: int) -> list[int]:
        """Return the line numbers of the same failure, and a few lines around if it has no traceback."""
        failure = self.failure_at.get(number)
        own = [each for each in failure.lines if each in self.failure_at] if failure else [number]
        if self.has_traceback(number):
            return own
        neighbours = range(max(0, number - CONTEXT_LINES), min(len(self.lines), number + CONTEXT_LINES + 1))
        return sorted({*own, *(each for each in neighbours if each not in self.failure_at)})


def is_log_record(line: str) -> bool:
    """Tell if a line is a warning or another record of a logger."""
    return LOG_RECORD.search(line) is not None


def names_exception(line: str) -> bool:
    """Tell if a line names an exception, and is neither a log record nor a remark that the exception is fixed."""
    named = EXCEPTION.search(line)
    return named is not None and not is_log_record(line) and not RESOLVED.search(line[: named.start()])


def unrecovered(failures: Sequence[Failure], lines: Sequence[str]) -> Iterator[Failure]:
    """Yield failures that the run did not recover from before the next failure."""
    for number, each in enumerate(failures, start=1):
        if number == len(failures) or not is_recovered(each, failures[number], lines):
            yield each


def is_recovered(failure: Failure, later: Failure, lines: Sequence[str]) -> bool:
    """Tell if the run retried or trained on between two failures.

    A later failure of a collective may follow from the first one: the other ranks train on until they need the rank.
    """
    if any(RETRY.search(line) for line in lines[max(0, failure.lines.start - 1) : failure.lines.start]):
        return True
    if any(COLLECTIVE.search(lines[number]) for number in later.lines):
        return False
    return any(TRAINING_STEP.match(line) for line in lines[failure.lines.start : later.lines.start])


def first_deaths(failures: Sequence[Failure], lines: Sequence[str], ranks: Sequence[str]) -> list[Failure]:
    """Return the failures of the rank that died first. Other ranks only lose their peer, or fail alike."""
    own = [each for each in failures if not is_lost_peer(each, lines)] or list(failures)
    if not ranks or not own:
        return own
    first = ranks[own[0].lines.start]
    return [each for each in own if ranks[each.lines.start] in {first, ""}]


def is_lost_peer(failure: Failure, lines: Sequence[str]) -> bool:
    """Tell if a rank failed only in a collective, as it does after another rank died."""
    exceptions = [lines[number] for number in failure.lines if names_exception(lines[number])]
    return bool(exceptions) and LOST_PEER.search(exceptions[-1]) is not None


def find_failures(lines: Sequence[str], ranks: Sequence[str] = ()) -> Iterator[Failure]:
    """Yield each failure once, in order. A chain of exceptions is one failure."""
    start, left = None, None  # ``left``: how many lines the message may still have; None before its first
    for number, line in enumerate(lines):
        other = bool(ranks) and start is not None and bool(ranks[number]) and ranks[number] != ranks[start]
        ended = left is not None and ends_failure(line, left, lines[number - 2 : number])
        if start is not None and (other or ended):
            yield build_failure(lines, start, number)
            start, left = None, None
        if FRAME.match(line):
            start, left = number if start is None else start, None
        elif names_exception(line) or (start is not None and left is None and LAST_LINE_OF_TRACEBACK.match(line)):
            start, left = number if start is None else start, MESSAGE_LINES
        elif left is not None and start is not None and not line.startswith((" ", "\t")):
            left -= 1
    if start is not None:
        yield build_failure(lines, start, len(lines))


def ends_failure(line: str, left: int, before: Sequence[str]) -> bool:
    """Tell if a line no longer belongs to the failure above it."""
    if FRAME.match(line):
        return not any(CHAIN.search(each) for each in before)
    return left == 0 or is_log_record(line) or WATCHDOG_RECORD.search(line) is not None


def build_failure(lines: Sequence[str], start: int, stop: int) -> Failure:
    exceptions = [line for line in lines[start:stop] if names_exception(line)]
    has_launcher = bool(exceptions) or any(LAUNCHER_FRAME.search(line) for line in lines[start:stop])
    only_launcher = all(LAUNCHER_EXCEPTION.search(line) for line in exceptions)
    return Failure(lines=range(start, stop), launcher=has_launcher and only_launcher)
