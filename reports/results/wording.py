"""What a cell says in one line, and how strange text is made harmless to show."""

from __future__ import annotations

import shlex
import unicodedata
from typing import TYPE_CHECKING, Final

from cases.space.verdict import shown
from matrix.versions.backends import SYSTEM
from reports.results.verdict_style import LOOKS

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from cases.space.verdict import Verdict
    from matrix.run.outcome import CheckRecord, Outcome, RunRecord, Scalar
    from matrix.search.fixes import Fixes

LONGEST: Final = 200
# Cc and Cf are controls and invisible format characters; among the latter are those that reverse the reading order.
HARMFUL: Final = ("Cc", "Cf", "Cs")


def plain(text: str) -> str:
    """The text with tabs as spaces, and without characters that could steer a terminal or reorder what is read."""
    return "".join(
        char if char == "\n" or unicodedata.category(char) not in HARMFUL else "\N{REPLACEMENT CHARACTER}"
        for char in text.expandtabs(4).replace("\r\n", "\n")
    )


def trimmed(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def first_line(text: str, longest: int = LONGEST) -> str:
    """The first line that says something."""
    lines = (line.strip() for line in plain(text).splitlines())
    return trimmed(next((line for line in lines if line), ""), longest)


def check_words(check: CheckRecord) -> str:
    """A missed check as a measurement against its bound: ``gradient 0.31, bound <= 0.06``."""
    return plain(f"{check.name} {shown(check.value)}, bound {check.op} {shown(check.bound)}")


def missed(outcome: Outcome) -> tuple[CheckRecord, ...]:
    return tuple(check for check in outcome.checks if not check.ok)


def headline(outcome: Outcome, longest: int = LONGEST) -> str:
    """Why the cell is as it is: its error, else the checks it missed, else the reason given."""
    if outcome.error is not None:
        return trimmed(f"{first_line(outcome.error.type)}: {first_line(outcome.error.message)}", longest)
    off = "; ".join(check_words(check) for check in missed(outcome))
    return first_line(off or outcome.reason or LOOKS[outcome.verdict].meaning, longest)


def gist(outcome: Outcome) -> str:
    """What must be the same for two cells to have gone wrong in the same way; measured values may differ."""
    if outcome.error is None and missed(outcome):
        return ", ".join(sorted(check.name for check in missed(outcome)))
    return headline(outcome)


def again(version_set: str, case: str, *, backend: str = "") -> str:
    """The command that runs just this cell; where it was laid over a host's torch, with a folder of wheels to name."""
    over = ("--offline", "WHEELS", "--system-torch") if backend == SYSTEM else ()
    return shlex.join(["ftmatrix", "run", *over, "--sets", version_set, "--where", f"case={case}"])


def rates(verdicts: Counter[Verdict]) -> str:
    """Of a flaky cell, e.g. ``pass 2 of 3, wrong 1 of 3``."""
    return ", ".join(f"{LOOKS[each].word} {count} of {verdicts.total()}" for each, count in verdicts.items())


def device(record: RunRecord | Fixes) -> str:
    """The kind of machine, so that a CPU result is never taken for a GPU result."""
    return "CPU (gloo)" if record.device == "cpu" else f"GPU ({record.device})"


def machine(record: RunRecord) -> str:
    """The hardware and, of GPUs, the driver with the newest CUDA that it runs."""
    driver, runs = record.facts.get("driver"), record.facts.get("driver_cuda")
    told = f", driver {driver}" if driver else ""
    return f"{record.hardware}{told}{f' (CUDA {runs})' if runs else ''}"


def brought(outcomes: Iterable[Outcome]) -> dict[str, dict[str, str]]:
    """By set, what its torch was built for and talks through, as cells on GPUs told; nothing of a run on a CPU."""
    found: dict[str, dict[str, str]] = {}
    for outcome in outcomes:
        if outcome.facts.get("nccl"):
            found[outcome.set] = {
                "CUDA": str(outcome.facts.get("torch_cuda") or ""),
                "NCCL": str(outcome.facts["nccl"]),
            }
    return found


def value_words(value: Scalar | None) -> str:
    return "" if value is None else plain(str(value))


def seconds_words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{seconds:.1f} s"
