"""Outcomes as they are stored: one JSON object a line, each with its schema version."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from cases.space import renamed
from cases.space.renamed import current_case_id, current_cell, current_options
from cases.space.verdict import Phase, Verdict
from matrix.keys import CellKey
from matrix.run import code_digest

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA: Final = 5
FORMER_GROUPS: Final = {
    "Advice, judged": "Advice from upstream threads",
    "Adapters, checkpointing and optimisers together": "Combinations of adapters, checkpointing and optimisers",
    "Beside the grid": "Outside the grid",
    "Going on with an adapter": "Continuing to train a saved adapter",
    "Other adapters merged": "Merging other adapters",
}
FORMER_OPTIONS: Final = frozenset({*renamed.OPTIONS, "also_trained"})
NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def number_or_text(text: str) -> float | str:
    """Read NaN and the infinities, which JSON lacks, from their stored names."""
    return NOT_FINITE.get(text, text)


def renamed_text(rename: Callable[[str], str]) -> BeforeValidator:
    """Replaces former names in stored text; leaves other types to the validation that follows."""
    return BeforeValidator(lambda value: rename(value) if isinstance(value, str) else value)


def current_group(name: str) -> str:
    """The present heading of a group, given a present or a former one."""
    return FORMER_GROUPS.get(name, name)


def renamed_options(value: Any) -> Any:
    return current_options(value) if isinstance(value, dict) and not FORMER_OPTIONS.isdisjoint(value) else value


Scalar = bool | int | float | Annotated[str, AfterValidator(number_or_text)]
# Stored results may hold former case ids, headings and option names; these types replace them by the present ones.
CaseId = Annotated[str, renamed_text(current_case_id)]
CellName = Annotated[str, renamed_text(current_cell)]
GroupName = Annotated[str, renamed_text(current_group)]
OptionValues = Annotated[dict[str, Scalar], BeforeValidator(renamed_options)]


Stamp = Annotated[str, AfterValidator(sys.intern)]  # most cells share one, so interning saves memory


class Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, ser_json_inf_nan="strings")


class CheckRecord(Stored):
    """One measurement: ``value op bound``, e.g. ``0.003 <= 0.06``."""

    name: str
    value: Scalar
    op: str
    bound: Scalar
    ok: bool


class ErrorRecord(Stored):
    """The first error of a cell, from the rank that raised it first."""

    type: str
    message: str
    rank: int | None = None
    traceback: str = ""


class DeviationRecord(Stored):
    """The first tensor of a module that left its tolerance; distances are relative to the reference.

    ``module`` is where to look: of a deviating input, the module that computes it. ``after`` is the last tensor before
    it that is within its tolerance. Compared with the unchanged stack, ``function`` is the first function that does
    something else; if no module runs it, ``module`` is the first one that differs, or empty.
    """

    kind: str = Field(
        description="batch, input, output, gradient (of the output), weight gradient, weight; without a "
        "reference, also call (another one, or one fewer), function and error"
    )
    name: str
    module: str
    step: int = Field(description="counts from 1; the one after the last is an evaluation; 0 without a reference")
    rank: int
    distance: float
    allowed: float
    after: str = ""
    function: str = Field(default="", description="a file below site-packages and the name of a function in it")


class LocationRecord(Stored):
    """Where a run of the cell with every module recorded first deviates from the reference.

    ``beginnings`` has the first deviation of the forward pass, the backward pass, the gradients and the weights, the
    earliest first; none if every module is within its tolerance. The curves are of the step and rank of the first.
    Where the reference does not know the modules, they are compared with those of the same cell ``against`` another
    stack, on which it passes, and there are no curves.
    """

    beginnings: tuple[DeviationRecord, ...] = ()
    outputs: dict[str, float] = Field(default_factory=dict, description="distance of each module's output, in order")
    gradients: dict[str, float] = Field(default_factory=dict, description="of each output's gradient, in order")
    uncompared: int = Field(default=0, description="modules without a counterpart in the reference")
    against: str = Field(default="", description="a version set, or 'the unchanged stack'; empty for the reference")


class Outcome(Stored):
    """The result of one run of one cell. Times are in seconds, memory is in MiB."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    set: str
    case: CaseId
    group: GroupName
    why: str
    options: OptionValues
    verdict: Verdict
    reason: str = ""
    phase: Phase | None = None
    checks: tuple[CheckRecord, ...] = ()
    error: ErrorRecord | None = None
    evidence: dict[str, str] = Field(default_factory=dict, description="path in the run directory by kind of file")
    metrics: dict[str, float] = Field(default_factory=dict)
    facts: dict[str, Scalar | None] = Field(default_factory=dict)
    series: dict[str, tuple[float, ...]] = Field(
        default_factory=dict, description="values of each step by name, of the job and its twin; none before schema 5"
    )
    attempt: int = 1
    repeat: int = Field(default=1, description="number of the repeat; attempts count retries of lost cells")
    lock: str = Field(default="", description="digest of the lock, and the build of torch")
    code: str = Field(default="", description="digest of the case code used; 'none' if none was")
    modules: Stamp = Field(default="", description="modules of that code with their digests; empty before schema 3")
    hardware: str = Field(default="", description="results are comparable on equal hardware, e.g. 'cpu: AMD EPYC x2'")
    location: LocationRecord | None = Field(default=None, description="of a wrong cell, if --locate looked for it")
    started: datetime
    seconds: float

    @property
    def cell(self) -> str:
        return str(CellKey(self.set, self.case))

    def has_same_code(self, other: Outcome) -> bool:
        """Return whether the same case code produced both outcomes, as far as both imported it.

        Outcomes of an older schema know only the digest of all case code.
        """
        return code_digest.same_code(self.modules, self.code, other.modules, other.code)


class SetRecord(Stored):
    """A version set as it was resolved and installed in a run."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    key: str
    python: str
    pins: dict[str, str]
    as_of: str
    why: str
    default: bool = False
    lock: str = ""
    torch_backend: str = ""
    blocked: str = Field(default="", description="why the set could not be resolved or installed; empty if it could")
    notes: tuple[str, ...] = ()
    facts: dict[str, Scalar | None] = Field(default_factory=dict)


class RunRecord(Stored):
    """The request of a run, and the machine it ran on."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    harness: str
    code: str
    started: datetime
    device: str
    request: dict[str, str] = Field(validation_alias="asked", serialization_alias="asked")  # the stored key
    planned: tuple[CellName, ...]
    hardware: str
    facts: dict[str, Scalar | None] = Field(default_factory=dict)
