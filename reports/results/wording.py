"""Words for outcomes, checks and machines, and the removal of characters that are unsafe to print."""

from __future__ import annotations

import re
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
DEVICE_WORDS: Final = {"cpu": "CPU (gloo)", "cuda-gloo": "one GPU that all ranks share (cuda-gloo)"}
DISTANCES: Final = re.compile(r"^(?:[\w-]+ )*(?:loss|gradient|weights|logits|scale|reload|merge|unmerge)(?:\[\S+\])?$")
LIMITS: Final = {"<=": "allowed: at most", ">=": "required: at least", "==": "expected:"}
# Cc and Cf are controls and invisible format characters; among the latter are those that reverse the reading order.
HARMFUL: Final = ("Cc", "Cf", "Cs")


def plain(text: str) -> str:
    """Return the text with tabs as spaces, and without characters that control a terminal or reorder text."""
    spaced = text.expandtabs(4).replace("\r\n", "\n")
    harmful = [ord(char) for char in {*spaced} - {"\n"} if unicodedata.category(char) in HARMFUL]
    return spaced.translate(dict.fromkeys(harmful, "\N{REPLACEMENT CHARACTER}")) if harmful else spaced


def trimmed(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def first_line(text: str, longest: int = LONGEST) -> str:
    """Return the first line that is not blank."""
    lines = (line.strip() for line in plain(text).splitlines())
    return trimmed(next((line for line in lines if line), ""), longest)


def check_words(check: CheckRecord) -> str:
    """Return a failed check as a sentence: ``gradient differs by 0.31 (allowed: 0.06)``."""
    value, bound = shown(check.value), shown(check.bound)
    if is_distance(check):
        name = check.name.removesuffix(" off")
        is_plural = name.endswith("s") and not name.endswith("ss")
        return plain(f"{name} {'differ' if is_plural else 'differs'} by {value} (allowed: {bound})")
    return plain(f"{check.name}: {value} ({LIMITS.get(check.op, check.op)} {bound})")


def is_distance(check: CheckRecord) -> bool:
    """Tell whether a check measures the distance from a reference: a relative error, or a value named so."""
    small = isinstance(check.bound, float) and check.bound < 1
    return check.op == "<=" and (check.name.endswith(" off") or (small and bool(DISTANCES.search(check.name))))


def measurement(check: CheckRecord) -> str:
    """Return a failed check as reproducers print it: ``gradient 0.31, bound <= 0.06``."""
    return plain(f"{check.name} {shown(check.value)}, bound {check.op} {shown(check.bound)}")


def measurements(outcome: Outcome) -> str:
    """Return the failed checks of an outcome, for patterns to search."""
    return "; ".join(map(measurement, missed(outcome)))


def missed(outcome: Outcome) -> tuple[CheckRecord, ...]:
    """Return the failed checks."""
    return tuple(check for check in outcome.checks if not check.ok)


def headline(outcome: Outcome, longest: int = LONGEST) -> str:
    """Return the reason for a verdict in one line: the error, else the failed checks, else the stored reason."""
    if outcome.error is not None:
        return trimmed(f"{first_line(outcome.error.type)}: {first_line(outcome.error.message)}", longest)
    off = "; ".join(check_words(check) for check in missed(outcome))
    return first_line(off or outcome.reason or LOOKS[outcome.verdict].meaning, longest)


def gist(outcome: Outcome) -> str:
    """Return the text that two cells with the same failure share; measured values may differ."""
    if outcome.error is None and missed(outcome):
        return ", ".join(sorted(check.name for check in missed(outcome)))
    return headline(outcome)


def again(version_set: str, case: str, *, backend: str = "") -> str:
    """Return the command that runs this cell alone.

    A cell that used the host's torch also needs the folder of wheels, which the user has to name.
    """
    over = ("--offline", "WHEELS", "--system-torch") if backend == SYSTEM else ()
    return shlex.join(["ftmatrix", "run", *over, "--sets", version_set, "--where", f"case={case}"])


def rates(verdicts: Counter[Verdict]) -> str:
    """Return the verdicts of a flaky cell with their counts, e.g. ``pass 2 of 3, wrong 1 of 3``."""
    return ", ".join(f"{LOOKS[each].word} {count} of {verdicts.total()}" for each, count in verdicts.items())


def device(record: RunRecord | Fixes) -> str:
    """Return the kind of device, so that nobody takes a CPU result for a GPU result."""
    return device_words(record.device)


def device_words(name: str) -> str:
    return DEVICE_WORDS.get(name, f"GPU ({name})")


def machine(record: RunRecord) -> str:
    """Return the hardware; for GPUs also the driver, and the newest CUDA version that it supports."""
    driver, runs = record.facts.get("driver"), record.facts.get("driver_cuda")
    driver_words = f", driver {driver}" if driver else ""
    return f"{record.hardware}{driver_words}{f' (CUDA {runs})' if runs else ''}"


def torch_builds(outcomes: Iterable[Outcome]) -> dict[str, dict[str, str]]:
    """Return the CUDA and NCCL versions of torch, by version set, as cells on GPUs reported them."""
    builds: dict[str, dict[str, str]] = {}
    for outcome in outcomes:
        if outcome.facts.get("nccl"):
            builds[outcome.set] = {
                "CUDA": str(outcome.facts.get("torch_cuda") or ""),
                "NCCL": str(outcome.facts["nccl"]),
            }
    return builds


def value_words(value: Scalar | None) -> str:
    return "" if value is None else plain(str(value))


def seconds_words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{seconds:.1f} s"
