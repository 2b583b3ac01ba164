"""The answer of a bisection, as it is stored and printed."""

from __future__ import annotations

from datetime import date, datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from cases.space.verdict import Verdict
from matrix.versions.moved_packages import MovedPackage

SCHEMA: Final = 1
ANSWER: Final = "bisect.json"  # in the run directory


class StoredPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class StepRecord(StoredPart):
    """A tested candidate."""

    phase: str = Field(description="ends, packages, releases, commits or pins")
    candidate: str
    set: str
    state: str = Field(description="green, red or untestable")
    verdict: Verdict
    reason: str = ""
    runs: int


class CommitRange(StoredPart):
    """The commits between which a package broke; those that could not be tested lie between them.

    ``title`` and ``committed`` are those of the first bad commit. If that is a parent of the last good one, it is not
    what broke the package: the last good one repaired it, and they are its title and date.
    """

    last_good: str
    first_bad: str
    title: str
    committed: str
    repair: bool = Field(default=False, description="whether the last good commit repaired what the bad release lacks")
    untestable: tuple[str, ...] = ()


class Culprit(StoredPart):
    """A package that made the cell red, and the releases between which it did."""

    package: str
    last_good: str
    first_bad: str
    last_good_uploaded: date | None = None
    first_bad_uploaded: date | None = None
    untestable: tuple[str, ...] = Field(default=(), description="releases between the two that could not be tested")
    moved_along: dict[str, tuple[str, str]] = Field(
        default_factory=dict, description="other packages that differ between the two environments, with both versions"
    )
    first_bad_set: str = Field(description="name of the first red candidate in the run directory")
    commits: CommitRange | None = None
    api: str = Field(
        default="", description="names and parameters that the first bad release lacks, and defaults that it changed"
    )

    @property
    def move(self) -> MovedPackage:
        """The package from its last good to its first bad release."""
        return MovedPackage(name=self.package, old=self.last_good, new=self.first_bad)


class Certainty(StoredPart):
    """How sure the answer is."""

    end_runs: int = Field(description="runs of the bad end")
    flake_rate: float = Field(description="share of the runs of red candidates without the failure")
    highest_flake_rate: float = Field(description="the highest rate that these runs leave possible, at 95 % confidence")
    repeats: int = Field(description="runs of a step before it counts as green; the search corrects wrong steps")
    boundary_runs: int = Field(description="runs of the last green release, and of all that the answer calls green")
    confidence: float = Field(description="probability that nothing that the answer calls green is so by chance")


class BisectAnswer(StoredPart):
    """The packages and releases that made a green cell red. Several culprits break only together."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    generated: datetime
    case: str
    good: str
    bad: str
    device: str
    hardware: str
    verdict: Verdict
    failure: str
    cause: str = ""
    differing: int = Field(description="packages that differ between the ends")
    culprits: tuple[Culprit, ...]
    required: tuple[str, ...] = Field(default=(), description="packages that had to move with the culprits")
    pins: dict[str, str] = Field(description="versions to use meanwhile")
    pins_base: str = Field(description="the set that the pins change; its other packages stay")
    pins_green: bool = Field(description="whether the cell is green there")
    certainty: Certainty
    steps: tuple[StepRecord, ...]
    cells: int
    seconds: float
    log: str = Field(default="", description="log of the first red candidate, in the run directory")
    no_commit: str = Field(default="", description="why no commit was found, if a repository was named")
