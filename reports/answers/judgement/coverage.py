"""Finds the measured cells that cover a job: cases that are a simpler form of it, on sets with its versions.

A user's job has many settings, and few cases have all of them. A job covers a case if both have the same values of the
options in ``SAME``, and the case has no other setting that the job lacks. If such a case is red, the job is red, unless
a green case lies between the two: then the added settings avoid the failure. What follows training has fewer cases;
there the nearest ones with the same goal count too, if all of them are green.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from cases.space.options import OWN_CODE, SHARDED, Options, names, values
from cases.space.verdict import RED, Verdict
from reports.answers.diagnosis.diagnose import diagnose, symptom
from reports.answers.diagnosis.signatures import CauseKind
from reports.answers.judgement import nearest_sets
from reports.answers.judgement.flows import TRAIN
from reports.results.wording import gist

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cases.space.options import Value
    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.diagnosis.signatures import Signature
    from reports.results.grid import Grid

    Stated = Mapping[str, Value]  # as ``Options.stated``

# Options that choose between alternatives. Every other option is off by default.
SAME: Final = (
    *(
        "flow",
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
GOAL: Final = ("flow", "method", "quant", "strategy")  # the user's goal; all other options are means to it
DECIDING: Final = RED | {Verdict.PASS}
DEFAULTS: Final[Mapping[str, Value]] = {name: getattr(Options(), name) for name in names()}


@dataclass(frozen=True, eq=False)
class RecordedJob:
    """The options of a case that is evidence for jobs."""

    options: Options

    @cached_property
    def stated(self) -> Stated:
        return self.options.stated

    @cached_property
    def uses(self) -> tuple[str, ...]:
        """The packages that the case uses."""
        return nearest_sets.used_packages(self.options)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredCell:
    """A cell of a job with a verdict, the stated options of its case and the packages that it uses."""

    matrix: Grid
    case: str
    column: SetRecord
    job: RecordedJob
    green: bool

    @property
    def stated(self) -> Stated:
        return self.job.stated

    @cached_property
    def outcome(self) -> Outcome:
        return self.matrix.cells[self.case, self.column.key]

    @cached_property
    def signature(self) -> Signature | None:
        """The best signature of a red cell; None if no signature fits."""
        best = next(iter(diagnose(symptom(self.outcome, self.column.pins))), None)
        return best.signature if best else None

    @property
    def cause(self) -> str:
        """The id of the signature of a red cell, or the gist of its error."""
        return self.signature.id if self.signature else gist(self.outcome)

    @property
    def settings(self) -> int:
        """The number of options that differ from the default."""
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
        """Equal for two red cells that failed in the same way."""
        return self.cell.cause


@dataclass(frozen=True, kw_only=True)
class JobCoverage:
    """The measured cells that a job covers: red ones, one per cause, and green ones.

    ``nearest`` are the nearest cells if the job covers none. ``machine_reds`` failed because of the machine that they
    ran on; other machines may run them.
    """

    reds: tuple[Red, ...]
    greens: tuple[MeasuredCell, ...]
    nearest: tuple[MeasuredCell, ...]
    machine_reds: tuple[Red, ...] = ()

    @property
    def is_green(self) -> bool:
        return bool(self.greens) and not self.reds


class MeasuredCells:
    """The cells of a grid that are evidence for training jobs; ``on_cpu`` states where the jobs run."""

    def __init__(self, matrix: Grid, *, on_cpu: bool = False) -> None:
        self.matrix = matrix
        self.on_cpu = on_cpu
        self.columns: tuple[SetRecord, ...] = matrix.sets

    @cached_property
    def by_set(self) -> Mapping[str, Mapping[tuple[str, ...], Sequence[MeasuredCell]]]:
        """The cells by set, and by the packages that their cases use."""
        jobs = recorded_jobs(self.matrix)
        return {
            column.key: cells_by_packages(column, self.matrix, jobs, on_cpu=self.on_cpu)
            for column in self.columns
            if nearest_sets.is_plain(column)
        }

    @cached_property
    def greens(self) -> tuple[MeasuredCell, ...]:
        """The green cells of every set."""
        groups = (cells for by_packages in self.by_set.values() for cells in by_packages.values())
        return tuple(each for cells in groups for each in cells if each.green)

    def cells_with(self, versions: Mapping[str, str]) -> Iterator[MeasuredCell]:
        """Yield the cells whose set has the given versions of every package that their case uses."""
        for column in self.columns:
            differing = set(nearest_sets.differing_packages(versions, column))
            for uses, cells in self.by_set.get(column.key, {}).items():
                if differing.isdisjoint(uses):
                    yield from cells

    def coverage(self, job: Options, versions: Mapping[str, str]) -> JobCoverage:
        """Return the measured cells that a job with some versions covers."""
        stated, cells = job.stated, list(self.cells_with(versions))
        covered = [each for each in cells if covers(stated, each.stated)]
        if covered:
            greens = tuple(sorted((each for each in covered if each.green), key=lambda each: -each.settings))
            reds = one_per_cause(
                each for each in covered if not each.green and not any(extends(green, each) for green in greens)
            )
            machine_reds = tuple(red for red in reds if self.is_of_other_machine(red.cell))
            reds = tuple(red for red in reds if red not in machine_reds)
            return JobCoverage(reds=reds, greens=greens, nearest=(), machine_reds=machine_reds)
        closest = nearest(stated, cells)
        if closest and job.flow != TRAIN and all(each.green for each in closest):
            return JobCoverage(reds=(), greens=tuple(closest), nearest=())
        close = closest and len(differing_options(stated, closest[0].stated)) == 1
        close = close and not any(each.green or self.is_of_other_machine(each) for each in closest)
        close = close and not any(each.green and is_near(stated, each.stated) for each in cells)
        reds = one_per_cause(closest, stated) if close else ()
        is_shared = len(reds) == 1 and not self.avoids(stated, reds[0])  # other causes mean that the difference matters
        return JobCoverage(reds=reds if is_shared else (), greens=(), nearest=tuple(closest))

    def avoids(self, job: Stated, red: Red) -> bool:
        """Tell if the job's value of the option in which a near red cell differs avoids its failure in other cells.

        That is so if, on one set, a case failed for the same cause with the cell's value and passed with the job's.
        """
        name = red.near[0]
        return any(
            cell.cause == red.cause
            for by_packages in self.by_set.values()
            for cells in by_packages.values()
            for cell in turned_by(cells, name, red.cell.stated.get(name), job.get(name))
        )

    def is_of_other_machine(self, cell: MeasuredCell) -> bool:
        """Tell if a cell failed because of the machine that ran it, so that a job elsewhere may pass."""
        return self.depends_on_machine(cell.signature)

    def depends_on_machine(self, row: Signature | None) -> bool:
        """Tell if a signature explains failures of the machine that ran a cell."""
        if row is None:
            return False
        return row.kind is CauseKind.MACHINE or (row.device == "cpu" and not self.on_cpu)


def turned_by(cells: Iterable[MeasuredCell], name: str, old: Value | None, new: Value | None) -> Iterator[MeasuredCell]:
    """Yield the red cells with the old value of an option whose case is green with the new one."""
    several = list(cells)
    passed = {frozenset(each.stated.items()) for each in several if each.green}
    for each in several:
        changed = frozenset({**each.stated, name: new}.items())
        if not each.green and each.stated.get(name) == old and changed in passed:
            yield each


def recorded_jobs(matrix: Grid) -> dict[int, RecordedJob]:
    """Return the jobs by the identity of the recorded options, which many cells share."""
    jobs = cache(RecordedJob)  # options of several sets may be equal
    found: dict[int, RecordedJob] = {}
    for stored in {id(each): each for each in matrix.options.values()}.values():
        known = recorded_options(tuple(stored.items()))
        if known is not None and known.flow not in OWN_CODE:
            found[id(stored)] = jobs(known)
    return found


def cells_by_packages(
    column: SetRecord, matrix: Grid, jobs: Mapping[int, RecordedJob], *, on_cpu: bool
) -> dict[tuple[str, ...], list[MeasuredCell]]:
    """Group the cells of a set by the packages that their cases use."""
    cells: dict[tuple[str, ...], list[MeasuredCell]] = {}
    for case in matrix.cases:
        verdict = matrix.verdicts.get((case, column.key))
        if verdict is None or verdict not in DECIDING:
            continue
        job = jobs.get(id(matrix.options[case, column.key]))
        if job is None:
            continue
        green = verdict is Verdict.PASS
        cell = MeasuredCell(matrix=matrix, case=case, column=column, job=job, green=green)
        if on_cpu or not is_replicated(job.options, cell):
            cells.setdefault(job.uses, []).append(cell)
    return cells


@cache
def every_value() -> Mapping[str, frozenset[Value]]:
    return {name: frozenset(values(name)) for name in names()}


@cache  # a case runs on many sets
def recorded_options(stored: tuple[tuple[str, Any], ...]) -> Options | None:
    """Return the options of a recorded case; None if the option space of this version lacks one of them."""
    known = every_value()
    if any(name not in known or (name != "call" and value not in known[name]) for name, value in stored):
        return None
    return Options(**dict(stored))


def is_replicated(options: Options, cell: MeasuredCell) -> bool:
    """Tell if a cell replicates a model that its options shard, as accelerate does on a CPU.

    That says nothing about jobs on GPUs.
    """
    sharded = options.front_end != "loop" and options.strategy in SHARDED
    return sharded and cell.outcome.hardware.startswith("cpu")


def covers(job: Stated, case: Stated) -> bool:
    """Tell if a case is a simpler form of a job."""
    return all(job.get(name) == case.get(name) for name in SAME) and has_no_extra_setting(job, case)


def extends(green: MeasuredCell, red: MeasuredCell) -> bool:
    """Tell if a green case is the red one with further settings, which then avoid the failure."""
    return green.stated != red.stated and covers(green.stated, red.stated)


def has_no_extra_setting(job: Stated, case: Stated) -> bool:
    """Tell if a job has every setting of a case. Two ranks count as the default number of ranks."""
    return all(
        value == job.get(name)
        for name, value in case.items()
        if value != DEFAULTS[name] and name not in SAME and (name, value) != ("world_size", 2)
    )


def one_per_cause(reds: Iterable[MeasuredCell], job: Stated | None = None) -> tuple[Red, ...]:
    """Return one red cell per cause: the one with the fewest settings."""
    by_cause: dict[str, Red] = {}
    for cell in sorted(reds, key=lambda each: each.settings):
        red = Red(cell=cell, near=differing_options(job, cell.stated) if job is not None else ())
        by_cause.setdefault(red.cause, red)
    return tuple(by_cause.values())


def nearest(job: Stated, cells: Iterable[MeasuredCell]) -> list[MeasuredCell]:
    """Return the cases with the same goal that differ from a job in the fewest settings."""
    same_goal = [each for each in cells if has_same_goal(job, each.stated) and has_no_extra_setting(job, each.stated)]
    least = min((len(differing_options(job, each.stated)) for each in same_goal), default=0)
    return sorted(
        (each for each in same_goal if len(differing_options(job, each.stated)) == least),
        key=lambda each: each.settings,
    )


def has_same_goal(job: Stated, other: Stated) -> bool:
    return all(job.get(name) == other.get(name) for name in GOAL)


def is_near(job: Stated, other: Stated) -> bool:
    """Tell if a case has a job's goal and differs in one setting; a precision decides the dtype of adapters as well."""
    differing = set(differing_options(job, other))
    if "torch_dtype" in differing:
        differing -= {"autocast_adapter_dtype"}
    return has_same_goal(job, other) and has_no_extra_setting(job, other) and len(differing) <= 1


def differing_options(job: Stated, other: Stated) -> tuple[str, ...]:
    return tuple(name for name in SAME if job.get(name) != other.get(name))


def unmeasured_settings(job: Options, greens: Iterable[MeasuredCell]) -> tuple[str, ...]:
    """Return the settings of a job, other than defaults, that no green case has."""
    measured = [each.stated for each in greens]
    return tuple(
        f"{name}={value}"
        for name, value in job.stated.items()
        if value != DEFAULTS[name] and name != "world_size" and not any(each.get(name) == value for each in measured)
    )
