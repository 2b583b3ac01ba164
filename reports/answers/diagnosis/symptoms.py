"""The known facts of a failure: its text, cleaned and sorted by rank, and what is known of the job."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from reports.answers.diagnosis.ranks import rank_of, sorted_by_rank
from reports.answers.diagnosis.signatures import QUOTES
from reports.answers.diagnosis.tracebacks import LogFailures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.verdict import Phase
    from matrix.run.outcome import Scalar
    from reports.answers.diagnosis.tracebacks import Death

COLOURS: Final = re.compile(r"(?:\x1b|\N{REPLACEMENT CHARACTER})\[[0-9;?]*[ -/]*[@-~]")
# Launchers, loggers and terminals put a prefix before a line: the rank, the time, the process, a frame.
PREFIXES: Final = re.compile(
    r"^(?:[ \t]*(?:\[?\b(?:rank ?|default|trainer|local_rank ?)\d+(?:\|\d+)?\]?:"
    r"|\[\d+,\d+\]<std(?:err|out)>:|\([^()\n]*\bpid=\d+[^()\n]*\)"
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]*Z?\]?|[│┃|>]))+[ \t]?",
    re.MULTILINE,
)
WITHOUT_QUOTES: Final = dict.fromkeys(
    map(ord, QUOTES + "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}")
)


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """The known facts of a failure. None means unknown: a pasted log does not state its options."""

    text: str = ""
    missed: tuple[str, ...] = ()
    case: str = ""
    options: Mapping[str, Scalar] | None = None
    phase: Phase | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""

    @cached_property
    def ranked_lines(self) -> tuple[tuple[str, str], ...]:
        """Each line without colours and prefixes, with the rank that wrote it; the lines of a rank stay together."""
        text = COLOURS.sub("", self.text.replace("\r\n", "\n").replace("\r", "\n"))
        of_rank = [rank_of(line) for line in text.split("\n")]
        plain = PREFIXES.sub("", text).split("\n")
        return tuple((of_rank[number], plain[number]) for number in sorted_by_rank(of_rank))

    @cached_property
    def marked(self) -> str:
        """The text without colours and quotes. Each line of ``bare`` is the end of a line of it."""
        return COLOURS.sub("", self.text).translate(WITHOUT_QUOTES)

    @cached_property
    def clean(self) -> str:
        """The text without colours and line prefixes."""
        return "\n".join(line for _, line in self.ranked_lines)

    @cached_property
    def bare(self) -> str:
        """The clean text without quotes, because releases quote names differently."""
        return self.clean.translate(WITHOUT_QUOTES)

    @cached_property
    def lines(self) -> list[str]:
        return self.clean.split("\n")

    @cached_property
    def bare_lines(self) -> list[str]:
        return self.bare.split("\n")

    @cached_property
    def log_failures(self) -> LogFailures:
        """The failures that the text reports."""
        return LogFailures(self.bare_lines, [rank for rank, _ in self.ranked_lines])

    @property
    def death(self) -> Death | None:
        """The traceback that ended the job."""
        return self.log_failures.death

    def near(self, number: int) -> str:
        """Return the failure that a line belongs to, or the lines around it."""
        return "\n".join(self.bare_lines[each] for each in self.log_failures.context(number))
