"""What a reproducer has to show of a red cell: the error it raised, or the measurement that missed its bound."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Phase, Verdict
from matrix.errors import UserError
from reports.results.wording import measurement, missed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.outcome import CheckRecord, Outcome


class Kind(StrEnum):
    """Each is a part of the template: how the symptom is made to show."""

    ERROR = "error"  # the stack raised
    GRADIENT = "gradient"  # it is not that of one process
    RESUMED = "resumed"  # as above, after a checkpoint
    TRAINER = "trainer"  # as above, of a trainer's step
    DISK = "disk"  # what was trained is not in the files
    RELOADED = "reloaded"  # what comes back infers something else
    MERGED = "merged"  # the merged model infers something else
    FROZEN = "frozen"  # what is not trained changed
    DTYPE = "dtype"  # the adapter is not in the dtype that it should have


# The first of these that a cell missed is what its reproducer measures: causes before what follows from them.
CHECKS: Final[Mapping[str, Kind]] = {
    "adapter dtype": Kind.DTYPE,
    "trained parameters missing on disk": Kind.DISK,
    "frozen parameters that changed": Kind.FROZEN,
    "gradient": Kind.GRADIENT,
    "merged logits": Kind.MERGED,
    "logits of the merged model": Kind.MERGED,
    "reloaded logits": Kind.RELOADED,
}

DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SHORT: Final = re.compile("|".join(DTYPES))
# What each of them means for a user: nothing is raised, but ...
MEANINGS: Final[Mapping[Kind, str]] = {
    Kind.DTYPE: "the adapter is not in the dtype that it should have",
    Kind.DISK: "parameters that were trained are missing from the files",
    Kind.FROZEN: "parameters that are not trained change",
    Kind.GRADIENT: "the gradient is not that of one process on the whole batch",
    Kind.TRAINER: "the gradient of a trainer's step is not that of its batch",
    Kind.RESUMED: "after resuming, the gradients are not those of a training without the stop",
    Kind.MERGED: "the merged model gives other logits",
    Kind.RELOADED: "the reloaded adapter gives other logits",
}


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """``phase`` is where an error was raised, ``again`` whether that phase had been passed before, a step earlier.

    ``resumed``: it was raised in a training that went on from a checkpoint.
    """

    kind: Kind
    phase: Phase | None = None
    again: bool = False
    resumed: bool = False
    check: CheckRecord | None = None

    @property
    def words(self) -> str:
        """A measurement as the script tells it: in torch's names of dtypes."""
        if self.check is None:
            return ""
        told = measurement(self.check)
        return SHORT.sub(lambda name: DTYPES[name[0]], told) if self.kind is Kind.DTYPE else told

    @property
    def meaning(self) -> str:
        """Of a measurement, as a sentence; an error speaks for itself."""
        return f"Nothing is raised, but {MEANINGS[self.kind]}." if self.kind in MEANINGS else ""

    def reaches(self, phase: str) -> bool:
        """Whether a script has to come to this phase; one that shows a measurement comes to its end."""
        order = list(Phase)
        return self.phase is None or order.index(Phase(phase)) <= order.index(self.phase)


def symptom(outcome: Outcome) -> Symptom:
    """Of a red cell.

    Raises:
        UserError: the cell is not red, or nothing that it missed can be shown by a short script.
    """
    if outcome.verdict not in RED:
        raise UserError(f"{outcome.cell} is {word(outcome.verdict)}: there is nothing to reproduce; give a red cell")
    if outcome.verdict is Verdict.WRONG:
        return measured(outcome)
    if outcome.verdict is not Verdict.FAIL or outcome.error is None:
        raise UserError(f"{outcome.cell}: the generator covers what failed or was wrong, no {outcome.verdict.value}")
    again = outcome.phase is not None and f"{outcome.phase.value}_s" in outcome.metrics
    return Symptom(kind=Kind.ERROR, phase=outcome.phase, again=again, resumed="resume_s" in outcome.metrics)


def word(verdict: Verdict) -> str:
    return {Verdict.PASS: "green"}.get(verdict, verdict.value)


def measured(outcome: Outcome) -> Symptom:
    off = {check.name: check for check in missed(outcome)}
    found = next((name for name in CHECKS if name in off), None)
    if found is None:
        raise UserError(f"{outcome.cell}: the check {next(iter(off), '?')!r} is not covered by the generator")
    kind = CHECKS[found]
    if kind is Kind.GRADIENT and outcome.options["flow"] == "resume":
        kind = Kind.RESUMED
    elif kind is Kind.GRADIENT and outcome.options.get("front_end", "loop") != "loop":
        kind = Kind.TRAINER
    return Symptom(kind=kind, check=off[found])
