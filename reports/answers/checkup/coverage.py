"""Finds the measured cells that cover a job: cases that are a simpler form of it, on sets with its versions.

A user's job has many settings, and few cases have all of them. A job covers a case if both have the same values of the
options in ``SAME``, and the case has no other setting that the job lacks. If such a case is red, the job is red, unless
a green case lies between the two: then the added settings avoid the failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from cases.space.options import SHARDED, Options, names, values
from cases.space.verdict import RED, Verdict
from reports.answers.checkup import nearest_sets
from reports.answers.diagnosis.diagnose import diagnose, symptom
from reports.answers.diagnosis.signatures import CauseKind
from reports.results.wording import gist

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cases.space.options import Value
    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.diagnosis.signatures import Signature
    from reports.results.grid import Grid

    Stated = Mapping[str, Value]  # as ``Options.stated``

# Choices of one thing or another; of the other options the default is to do without.
SAME: Final = (
    *(
        "method",
        "quant",
        "bnb_4bit_quant_storage",
        "torch_dtype",
        "autocast_adapter_dtype",
        "strategy",
        "use_orig_params",
        "auto_wrap_policy",
    ),
    "sharding_strategy",
)
GOAL: Final = ("method", "quant", "strategy")  # what a user wants; settings are how
DEFAULTS: Final[Mapping[str, Value]] = {name: getattr(Options(), name) for name in names()}


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredCell:
    """A cell of a training that passed or went wrong; what its case says and uses is computed once."""

    outcome: Outcome
    column: SetRecord
    stated: Stated
    uses: tuple[str, ...]

    @property
    def green(self) -> bool:
        return self.outcome.verdict is Verdict.PASS

    @cached_property
    def signature(self) -> Signature | None:
        """Why it is red; None is unexplained."""
        best = next(iter(diagnose(symptom(self.outcome, self.column.pins))), None)
        return best.signature if best else None

    @property
    def settings(self) -> int:
        """How many options are other than the default."""
        return sum(value != DEFAULTS[name] for name, value in self.stated.items())


@dataclass(frozen=True, kw_only=True)
class Red:
    """A red cell that a job covers.

    ``near`` lists the options in which it differs, if the job covers no measured case and all nearest ones are red.
    """

    cell: MeasuredCell
    near: tuple[str, ...] = ()

    @property
    def cause(self) -> str:
        """What two red cells share if they went wrong in one way."""
        return self.cell.signature.id if self.cell.signature else gist(self.cell.outcome)


@dataclass(frozen=True, kw_only=True)
class JobCoverage:
    """The measured cells that a job covers: red ones, one per cause, and green ones.

    ``nearest`` are the nearest cells if the job covers none. ``machine_reds`` are red because of the machine that they
    ran on, which says nothing about another machine.
    """

    reds: tuple[Red, ...]
    greens: tuple[MeasuredCell, ...]
    nearest: tuple[MeasuredCell, ...]
    machine_reds: tuple[Red, ...] = ()

    @property
    def is_green(self) -> bool:
        return bool(self.greens) and not self.reds


class MeasuredCells:
    """The cells of a grid that say something of a training job, which itself may be one on a CPU."""

    def __init__(self, matrix: Grid, *, on_cpu: bool = False) -> None:
        self.on_cpu = on_cpu
        self.columns: tuple[SetRecord, ...] = matrix.sets
        self.by_set = {column.key: grouped(column, matrix) for column in self.columns if nearest_sets.is_plain(column)}

    def at(self, there: Mapping[str, str]) -> Iterator[MeasuredCell]:
        """The cells on sets that have an environment's versions of what their case uses."""
        for column in self.columns:
            off = set(nearest_sets.differing(there, column))
            for uses, cells in self.by_set.get(column.key, {}).items():
                if off.isdisjoint(uses):
                    yield from cells

    def judged(self, job: Options, there: Mapping[str, str]) -> JobCoverage:
        """What was measured of a job with some versions."""
        mine, here = job.stated, list(self.at(there))
        inside = [each for each in here if contains(mine, each.stated)]
        if inside:
            greens = tuple(sorted((each for each in inside if each.green), key=lambda each: -each.settings))
            reds = one_per_cause(
                each for each in inside if not each.green and not any(adds(green, each) for green in greens)
            )
            machine_reds = tuple(red for red in reds if self.is_of_other_machine(red.cell))
            reds = tuple(red for red in reds if red not in machine_reds)
            return JobCoverage(reds=reds, greens=greens, nearest=(), machine_reds=machine_reds)
        closest = nearest(mine, here)
        close = closest and len(differing_options(mine, closest[0].stated)) == 1
        close = close and not any(each.green or self.is_of_other_machine(each) for each in closest)
        return JobCoverage(reds=one_per_cause(closest, mine) if close else (), greens=(), nearest=tuple(closest))

    def is_of_other_machine(self, cell: MeasuredCell) -> bool:
        """Whether a cell is red for a reason that a job on another machine has not."""
        row = cell.signature
        if row is None:
            return False
        return row.kind is CauseKind.MACHINE or (row.device == "cpu" and not self.on_cpu)


def grouped(column: SetRecord, matrix: Grid) -> dict[tuple[str, ...], list[MeasuredCell]]:
    """The cells of a set, by the packages that their cases use."""
    found: dict[tuple[str, ...], list[MeasuredCell]] = {}
    for case in matrix.cases:
        outcome = matrix.lookup(case, column.key)
        if outcome is None or outcome.verdict not in RED | {Verdict.PASS}:
            continue
        known = point(tuple(outcome.options.items()))
        if known is not None and tells(known, outcome):
            stated, uses = known.stated, nearest_sets.used(known)
            found.setdefault(uses, []).append(MeasuredCell(outcome=outcome, column=column, stated=stated, uses=uses))
    return found


@cache  # a case stands on many sets
def point(stored: tuple[tuple[str, Any], ...]) -> Options | None:
    """A recorded case's options; None for what this version's option space does not have."""
    if any(name not in DEFAULTS or (name != "call" and value not in values(name)) for name, value in stored):
        return None
    return Options(**dict(stored))


def tells(options: Options, outcome: Outcome) -> bool:
    """Whether it trains, and does what its options say: on a CPU accelerate replicates what it was told to shard."""
    replicated = options.front_end != "loop" and options.strategy in SHARDED and outcome.hardware.startswith("cpu")
    return options.flow == "train" and not replicated


def contains(whole: Stated, part: Stated) -> bool:
    """Whether a case is a simpler form of a job."""
    return all(whole.get(name) == part.get(name) for name in SAME) and adds_nothing(whole, part)


def adds(green: MeasuredCell, red: MeasuredCell) -> bool:
    """Whether a green case is a red one and something more, which then is what helps."""
    return green.stated != red.stated and contains(green.stated, red.stated)


def adds_nothing(whole: Stated, part: Stated) -> bool:
    """Whether a case has no setting that a job has not; how many ranks there are matters from four on."""
    return all(
        value == whole.get(name)
        for name, value in part.items()
        if value != DEFAULTS[name] and name not in SAME and (name, value) != ("world_size", 2)
    )


def one_per_cause(reds: Iterable[MeasuredCell], job: Stated | None = None) -> tuple[Red, ...]:
    """One a cause, the plainest."""
    by_cause: dict[str, Red] = {}
    for cell in sorted(reds, key=lambda each: each.settings):
        red = Red(cell=cell, near=differing_options(job, cell.stated) if job is not None else ())
        by_cause.setdefault(red.cause, red)
    return tuple(by_cause.values())


def nearest(job: Stated, cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    """Of the cases with the same wish, those that differ from a job in the fewest settings."""
    wished = [each for each in cells if has_same_goal(job, each.stated) and adds_nothing(job, each.stated)]
    least = min((len(differing_options(job, each.stated)) for each in wished), default=0)
    return sorted(
        (each for each in wished if len(differing_options(job, each.stated)) == least), key=lambda each: each.settings
    )


def has_same_goal(job: Stated, other: Stated) -> bool:
    return all(job.get(name) == other.get(name) for name in GOAL)


def differing_options(job: Stated, other: Stated) -> tuple[str, ...]:
    return tuple(name for name in SAME if job.get(name) != other.get(name))


def unmeasured(job: Options, greens: Iterable[MeasuredCell]) -> tuple[str, ...]:
    """Of a job's settings that are not the default, those that no green case has."""
    seen = [each.stated for each in greens]
    return tuple(
        f"{name}={value}"
        for name, value in job.stated.items()
        if value != DEFAULTS[name] and name != "world_size" and not any(each.get(name) == value for each in seen)
    )
