"""The symptom that a reproducer shows: the error that a red cell raised, or the first measurement out of its bound."""

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


class SymptomKind(StrEnum):
    """The kinds of symptoms; each has a template that shows it."""

    ERROR = "error"  # the stack raises
    GRADIENT = "gradient"  # the gradient is not that of one process
    RESUMED = "resumed"  # as above, after a checkpoint
    TRAINER = "trainer"  # as above, in a trainer's step
    DISK = "disk"  # trained parameters are missing in the files
    RELOADED = "reloaded"  # the reloaded model gives other logits
    MERGED = "merged"  # the merged model gives other logits
    FROZEN = "frozen"  # frozen parameters change
    DTYPE = "dtype"  # the adapter has a wrong dtype


# A reproducer measures the first of these checks that its cell missed. Causes come before their consequences.
CHECKS: Final[Mapping[str, SymptomKind]] = {
    "adapter dtype": SymptomKind.DTYPE,
    "trained parameters missing on disk": SymptomKind.DISK,
    "frozen parameters that changed": SymptomKind.FROZEN,
    "gradient": SymptomKind.GRADIENT,
    "merged logits": SymptomKind.MERGED,
    "logits of the merged model": SymptomKind.MERGED,
    "reloaded logits": SymptomKind.RELOADED,
}

DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SHORT: Final = re.compile("|".join(DTYPES))
# The meaning for a user, after "Nothing is raised, but".
MEANINGS: Final[Mapping[SymptomKind, str]] = {
    SymptomKind.DTYPE: "the adapter is not in the dtype that it should have",
    SymptomKind.DISK: "parameters that were trained are missing from the files",
    SymptomKind.FROZEN: "parameters that are not trained change",
    SymptomKind.GRADIENT: "the gradient is not that of one process on the whole batch",
    SymptomKind.TRAINER: "the gradient of a trainer's step is not that of its batch",
    SymptomKind.RESUMED: "after resuming, the gradients are not those of a training without the stop",
    SymptomKind.MERGED: "the merged model gives other logits",
    SymptomKind.RELOADED: "the reloaded adapter gives other logits",
}


@dataclass(frozen=True, kw_only=True)
class ShownSymptom:
    """The symptom of one cell.

    An error has a ``phase``. ``again``: the cell had passed this phase in an earlier step. ``resumed``: the training
    had continued from a checkpoint. A measurement has a ``check``.
    """

    kind: SymptomKind
    phase: Phase | None = None
    again: bool = False
    resumed: bool = False
    check: CheckRecord | None = None

    @property
    def words(self) -> str:
        """A measurement in the words of the script, with torch's names of dtypes."""
        if self.check is None:
            return ""
        text = measurement(self.check)
        return SHORT.sub(lambda name: DTYPES[name[0]], text) if self.kind is SymptomKind.DTYPE else text

    @property
    def meaning(self) -> str:
        """The meaning of a measurement as a sentence; empty for an error."""
        return f"Nothing is raised, but {MEANINGS[self.kind]}." if self.kind in MEANINGS else ""

    def reaches(self, phase: str) -> bool:
        """Tell whether the script runs this phase. A script that shows a measurement runs all phases."""
        order = list(Phase)
        return self.phase is None or order.index(Phase(phase)) <= order.index(self.phase)


def symptom(outcome: Outcome) -> ShownSymptom:
    """The symptom of a red cell.

    Raises:
        UserError: the cell is not red, or no short script can show a check that it missed.
    """
    if outcome.verdict not in RED:
        raise UserError(f"{outcome.cell} is {word(outcome.verdict)}: there is nothing to reproduce; choose a red cell")
    if outcome.verdict is Verdict.WRONG:
        return measured(outcome)
    if outcome.verdict is not Verdict.FAIL or outcome.error is None:
        raise UserError(
            f"{outcome.cell}: the generator covers the verdicts fail and wrong, not {outcome.verdict.value}"
        )
    again = outcome.phase is not None and f"{outcome.phase.value}_s" in outcome.metrics
    return ShownSymptom(kind=SymptomKind.ERROR, phase=outcome.phase, again=again, resumed="resume_s" in outcome.metrics)


def word(verdict: Verdict) -> str:
    return {Verdict.PASS: "green"}.get(verdict, verdict.value)


def measured(outcome: Outcome) -> ShownSymptom:
    off = {check.name: check for check in missed(outcome)}
    name = next((name for name in CHECKS if name in off), None)
    if name is None:
        raise UserError(f"{outcome.cell}: the check {next(iter(off), '?')!r} is not covered by the generator")
    kind = CHECKS[name]
    if kind is SymptomKind.GRADIENT and outcome.options["flow"] == "resume":
        kind = SymptomKind.RESUMED
    elif kind is SymptomKind.GRADIENT and outcome.options.get("front_end", "loop") != "loop":
        kind = SymptomKind.TRAINER
    return ShownSymptom(kind=kind, check=off[name])
