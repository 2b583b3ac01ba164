"""The sign, word and colour of each verdict, for every kind of report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases.space.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The style of one verdict on a terminal, in Markdown and on the page. Signs differ also without colour."""

    sign: str
    word: str
    style: str
    css: str
    meaning: str


LOOKS: Final[Mapping[Verdict, Look]] = {
    Verdict.PASS: Look(sign="✓", word="pass", style="green", css="pass", meaning="ran, and every check holds"),
    Verdict.WRONG: Look(
        sign="≠", word="wrong", style="bold magenta", css="wrong", meaning="ran, but a number or an option is off"
    ),
    Verdict.FAIL: Look(sign="✗", word="fail", style="bold red", css="fail", meaning="the stack raised"),
    Verdict.HANG: Look(sign="∞", word="hang", style="bold red", css="hang", meaning="a rank stopped making progress"),
    Verdict.CRASH: Look(
        sign="!", word="crash", style="bold red", css="crash", meaning="a rank was ended by a signal or by memory"
    ),
    Verdict.BLOCKED: Look(
        sign="⊘", word="blocked", style="yellow", css="blocked", meaning="the set cannot be resolved or installed"
    ),
    Verdict.SKIP: Look(sign="-", word="skip", style="dim", css="skip", meaning="this machine or version cannot run it"),
    Verdict.LOST: Look(
        sign="?", word="lost", style="bold cyan", css="lost", meaning="the harness or machine failed: run again"
    ),
}

UNKNOWN: Final = Look(sign="·", word="unknown", style="dim", css="unknown", meaning="not run")


def look(verdict: Verdict | None) -> Look:
    return UNKNOWN if verdict is None else LOOKS[verdict]
