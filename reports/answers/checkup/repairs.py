"""Finds changes that make a job green according to the measured cells: settings first, then versions.

A change qualifies only if the changed job covers a green case and no red one on a set with the same versions. The green
case must also have the settings of the red one that the job keeps. Fixes that a search proved (``fixes.json``) come
first, then changes that lead from a red cell of the grid to a green one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cases.space.verdict import Verdict
from matrix.search.fixes import Kind
from matrix.search.neighbours import GIVEN_UP, SETTINGS
from reports.answers.checkup import nearest_sets
from reports.answers.checkup.coverage import DEFAULTS, GOAL, SAME, has_same_goal, unmeasured
from reports.answers.configuration import job as jobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cases.space.options import Options, Value
    from matrix.run.outcome import SetRecord
    from reports.answers.checkup.coverage import JobCoverage, MeasuredCell, MeasuredCells, Red
    from reports.answers.configuration.configs import Config
    from reports.answers.configuration.job import TrainingJob
    from reports.answers.fixes.remedies import Remedy
    from reports.results.grid import Grid

PRECISION: Final = ("torch_dtype", "bnb_4bit_compute_dtype", "autocast", "mixed_precision")
KEPT: Final = (*PRECISION, "world_size", "front_end", "model", "embeddings", "loop")  # neither changed nor given up
MOST: Final = 3  # changes at once
# What stands in for a part of the wish, in the order in which a user would give it up.
INSTEAD: Final[Mapping[str, Mapping[Value, tuple[Mapping[str, Value], ...]]]] = {
    "quant": {
        "int8": ({"quant": "nf4", "bnb_4bit_quant_storage": "bf16"}, {"quant": "nf4"}, {"quant": "none"}),
        "nf4": ({"quant": "none"},),
        "fp4": ({"quant": "nf4"}, {"quant": "none"}),
    },
    "strategy": {"fsdp1": ({"strategy": "ddp"},), "fsdp2": ({"strategy": "ddp"},)},
    "method": {name: ({"method": "lora"},) for name in ("dora", "rslora", "pissa", "olora", "loftq")},
}

Changes = dict[str, "Value"]


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Options to change, the measured case that shows it, and the files that say so; empty where no file can.

    ``given_up`` is what was asked for and goes; empty where only settings change.
    """

    changes: Mapping[str, Value]
    options: Options
    proof: MeasuredCell
    texts: Mapping[Config, str]
    given_up: str = ""

    @property
    def rest(self) -> tuple[str, ...]:
        """Settings of the changed job that the case which shows it has not."""
        return unmeasured(self.options, [self.proof])


@dataclass(frozen=True, kw_only=True)
class VersionMove:
    """A set on which the job, as it is or with changed settings, is green; and the packages that have to move.

    ``rest`` are the job's settings that the green cell has not; ``plainest`` is the call, where it shows no more.
    """

    column: SetRecord
    moves: Mapping[str, str]
    proof: str  # a green cell
    rest: tuple[str, ...] = ()
    plainest: str = ""
    settings: Repair | None = None


def by_settings(
    job: TrainingJob, found: JobCoverage, at: Mapping[str, str], evidence: MeasuredCells, fixes: Mapping[str, Remedy]
) -> Repair | None:
    """The smallest change of settings that a file can say; failing that, one that only code can."""
    return first(job, candidates(job, found, at, evidence, fixes), at, evidence, found.reds)


def by_giving_up(job: TrainingJob, at: Mapping[str, str], evidence: MeasuredCells) -> Repair | None:
    """The least that was asked for without which the job is green, if its files can do without it."""
    start = options_of(job)
    reds = evidence.judged(start, at).reds
    for name, changes in parts(start):
        without = moved(start, changes)
        if without is None:
            continue
        more = beside(without, evidence.judged(without, at), at, evidence)
        found = first(job, [dict(changes), *({**changes, **each} for each in more)], at, evidence, reds)
        if found is not None and found.texts:
            return replace(found, given_up=f"{name}={getattr(start, name)}")
    return None


def parts(start: Options) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """What may be given up, and what stands in for it: what was added to the wish, then the wish."""
    for name, instead in GIVEN_UP.items():
        if name not in (*GOAL, *KEPT):
            yield from ((name, {name: value}) for value in instead.get(getattr(start, name), ()))
    for name in GOAL:
        yield from ((name, changes) for changes in INSTEAD.get(name, {}).get(getattr(start, name), ()))


def keeps(start: Options, changes: Mapping[str, Value]) -> bool:
    """Whether changes are of settings only: nothing that was asked for is given up."""
    return all(is_setting(start, name, value) for name, value in changes.items())


def is_setting(start: Options, name: str, value: Value) -> bool:
    may_change = any(row.option == name and value in row.to and row.when(start) for row in SETTINGS)
    return may_change and value not in GIVEN_UP.get(name, {}).get(getattr(start, name), ())


def first(
    job: TrainingJob, tried: Iterable[Changes], at: Mapping[str, str], evidence: MeasuredCells, reds: Sequence[Red]
) -> Repair | None:
    in_code: Repair | None = None
    for changes in tried:
        written = jobs.patched(job, changes, at)
        options = written[0].options if written else moved(options_of(job), changes)
        if options is None:
            continue
        proof = shown(options, evidence.judged(options, at), reds)
        if proof is None:
            continue
        repair = Repair(changes=changes, options=options, proof=proof, texts=written[1] if written else {})
        if written:
            return repair
        in_code = in_code or repair
    return in_code


def shown(options: Options, found: JobCoverage, reds: Sequence[Red]) -> MeasuredCell | None:
    """A green case that shows a job to be healed: it has of a red one's additions those that the job still has."""
    still = options.stated.items()
    essential = [
        (name, value)
        for red in reds
        for name, value in red.cell.stated.items()
        if value != DEFAULTS[name] and name not in (*SAME, "world_size") and (name, value) in still
    ]
    several = found.greens if found.is_green else ()
    return next((each for each in several if all(each.stated.get(name) == value for name, value in essential)), None)


def candidates(
    job: TrainingJob, found: JobCoverage, at: Mapping[str, str], evidence: MeasuredCells, fixes: Mapping[str, Remedy]
) -> Iterator[Changes]:
    for red in found.reds:
        remedy = fixes.get(red.cell.outcome.cell)
        if remedy is not None and remedy.fix.kind is Kind.SETTINGS:
            changes = remedy.fix.changes
            proven = {change.name: change.new for change in changes if not isinstance(change.new, float)}
            if keeps(options_of(job), proven):
                yield proven
    yield from beside(options_of(job), found, at, evidence)


def beside(start: Options, found: JobCoverage, at: Mapping[str, str], evidence: MeasuredCells) -> list[Changes]:
    """Settings that leave a red case: without one of its additions, or as a green case with the same wish has it."""
    mine = start.stated
    additions = {
        name: DEFAULTS[name]
        for each in found.reds
        for name, value in each.cell.stated.items()
        if value != DEFAULTS[name] and name not in (*SAME, *KEPT)
    }
    ways: list[Changes] = [{name: value} for name, value in additions.items()]
    for cell in evidence.at(at):
        its = cell.stated
        if not cell.green or not has_same_goal(mine, its):
            continue
        changes: Changes = {
            name: value
            for name, value in its.items()
            if value != mine.get(name) and (name in SAME or value != DEFAULTS[name]) and name != "world_size"
        }
        if 0 < len(changes) <= MOST and not changes.keys() & set(KEPT):
            ways.append(changes)
    unique = {tuple(sorted(each.items())): each for each in ways if keeps(start, each)}
    return sorted(unique.values(), key=len)


def moved(start: Options, changes: Mapping[str, Value]) -> Options | None:
    """A point with some options changed; None where the option space has no such point."""
    options = jobs.legal(replace(start, **changes), [])  # type: ignore[arg-type]  # values of options, from cases
    return None if options.why_illegal else options


def options_of(job: TrainingJob) -> Options:
    if job.options is None:
        raise ValueError("a job that was not understood has nothing to change")
    return job.options


def by_versions(
    job: TrainingJob,
    at: Mapping[str, str],
    evidence: MeasuredCells,
    fixes: Mapping[str, Remedy],
) -> VersionMove | None:
    """The nearest set on which the job is green as it is; failing that, with settings that its files can say."""
    options = options_of(job)
    uses, reds = nearest_sets.used(options), evidence.judged(options, at).reds
    in_order = [
        each for each in nearest_sets.nearest(at, evidence.columns, uses) if nearest_sets.differing(at, each, uses)
    ]
    for column in in_order:
        proof = shown(options, evidence.judged(options, column.pins), reds)
        if proof is not None:
            rest = unmeasured(options, [proof])
            return VersionMove(column=column, moves=moves(at, column, uses), proof=proof.outcome.cell, rest=rest)
    for column in in_order:
        found = evidence.judged(options, column.pins)
        repair = by_settings(job, replace(found, reds=(*found.reds, *reds)), column.pins, evidence, fixes)
        if repair is not None and repair.texts:
            return VersionMove(
                column=column,
                moves=moves(at, column, uses),
                proof=repair.proof.outcome.cell,
                rest=repair.rest,
                settings=repair,
            )
    return None


def sound_set(at: Mapping[str, str], matrix: Grid) -> VersionMove | None:
    """The nearest set on which the plainest use of what is installed is green."""
    for column in nearest_sets.nearest(at, matrix.sets, tuple(at)):
        for call, packages in reversed(nearest_sets.PLAINEST.items()):
            outcome = matrix.lookup(f"api-{call}", column.key)
            if set(packages) <= at.keys() and outcome is not None and outcome.verdict is Verdict.PASS:
                return VersionMove(column=column, moves=moves(at, column, tuple(at)), proof=outcome.cell, plainest=call)
    return None


def moves(at: Mapping[str, str], column: SetRecord, names: Iterable[str]) -> dict[str, str]:
    """The packages that have to move, and where to, as an index of packages has it."""
    return {name: nearest_sets.without_build(column.pins[name]) for name in nearest_sets.differing(at, column, names)}
