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
from reports.answers.checkup.coverage import DEFAULTS, GOAL, SAME, has_same_goal, unmeasured_settings
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
MAX_CHANGES: Final = 3  # changes at once
# Substitutes for parts of the goal, in the order in which a user would accept them.
SUBSTITUTES: Final[Mapping[str, Mapping[Value, tuple[Mapping[str, Value], ...]]]] = {
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
    """Options to change, the measured case that proves it, and the changed files; empty if no file can express it.

    ``given_up`` is the requested option that the change drops; empty if only settings change.
    """

    changes: Mapping[str, Value]
    options: Options
    proof: MeasuredCell
    texts: Mapping[Config, str]
    given_up: str = ""

    @property
    def rest(self) -> tuple[str, ...]:
        """Settings of the changed job that the proving case lacks."""
        return unmeasured_settings(self.options, [self.proof])


@dataclass(frozen=True, kw_only=True)
class VersionMove:
    """A set on which the job, unchanged or with changed settings, is green, and the packages to move.

    ``rest`` are the job's settings that the green cell lacks. ``plainest`` names the call if the cell is only a basic
    use of the packages.
    """

    column: SetRecord
    moves: Mapping[str, str]
    proof: str  # a green cell
    rest: tuple[str, ...] = ()
    plainest: str = ""
    settings: Repair | None = None


def by_settings(
    job: TrainingJob,
    coverage: JobCoverage,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    fixes: Mapping[str, Remedy],
) -> Repair | None:
    """Return the smallest change of settings that a file can express; failing that, one that only code can."""
    return first_repair(
        job, candidate_changes(job, coverage, versions, evidence, fixes), versions, evidence, coverage.reds
    )


def by_giving_up(job: TrainingJob, versions: Mapping[str, str], evidence: MeasuredCells) -> Repair | None:
    """Return the change that gives up the least important part of the job, if its files can express it."""
    start = options_of(job)
    reds = evidence.coverage(start, versions).reds
    for name, changes in parts_to_give_up(start):
        without = changed_options(start, changes)
        if without is None:
            continue
        more = neighbouring_changes(without, evidence.coverage(without, versions), versions, evidence)
        repair = first_repair(job, [dict(changes), *({**changes, **each} for each in more)], versions, evidence, reds)
        if repair is not None and repair.texts:
            return replace(repair, given_up=f"{name}={getattr(start, name)}")
    return None


def parts_to_give_up(start: Options) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """Yield options to give up, each with a substitute: additions first, then parts of the goal."""
    for name, instead in GIVEN_UP.items():
        if name not in (*GOAL, *KEPT):
            yield from ((name, {name: value}) for value in instead.get(getattr(start, name), ()))
    for name in GOAL:
        yield from ((name, changes) for changes in SUBSTITUTES.get(name, {}).get(getattr(start, name), ()))


def changes_settings_only(start: Options, changes: Mapping[str, Value]) -> bool:
    """Tell if changes concern settings only and give up nothing that was requested."""
    return all(is_setting(start, name, value) for name, value in changes.items())


def is_setting(start: Options, name: str, value: Value) -> bool:
    may_change = any(row.option == name and value in row.to and row.when(start) for row in SETTINGS)
    return may_change and value not in GIVEN_UP.get(name, {}).get(getattr(start, name), ())


def first_repair(
    job: TrainingJob,
    candidates: Iterable[Changes],
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    reds: Sequence[Red],
) -> Repair | None:
    in_code: Repair | None = None
    for changes in candidates:
        patched_job = jobs.patch(job, changes, versions)
        options = patched_job[0].options if patched_job else changed_options(options_of(job), changes)
        if options is None:
            continue
        proof = proving_case(options, evidence.coverage(options, versions), reds)
        if proof is None:
            continue
        repair = Repair(changes=changes, options=options, proof=proof, texts=patched_job[1] if patched_job else {})
        if patched_job:
            return repair
        in_code = in_code or repair
    return in_code


def proving_case(options: Options, coverage: JobCoverage, reds: Sequence[Red]) -> MeasuredCell | None:
    """Return a green case that proves a changed job: it has the additions of the red cases that the job keeps."""
    settings = options.stated.items()
    essential = [
        (name, value)
        for red in reds
        for name, value in red.cell.stated.items()
        if value != DEFAULTS[name] and name not in (*SAME, "world_size") and (name, value) in settings
    ]
    greens = coverage.greens if coverage.is_green else ()
    return next((each for each in greens if all(each.stated.get(name) == value for name, value in essential)), None)


def candidate_changes(
    job: TrainingJob,
    coverage: JobCoverage,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    fixes: Mapping[str, Remedy],
) -> Iterator[Changes]:
    for red in coverage.reds:
        remedy = fixes.get(red.cell.outcome.cell)
        if remedy is not None and remedy.fix.kind is Kind.SETTINGS:
            changes = remedy.fix.changes
            proven = {change.name: change.new for change in changes if not isinstance(change.new, float)}
            if changes_settings_only(options_of(job), proven):
                yield proven
    yield from neighbouring_changes(options_of(job), coverage, versions, evidence)


def neighbouring_changes(
    start: Options, coverage: JobCoverage, versions: Mapping[str, str], evidence: MeasuredCells
) -> list[Changes]:
    """Return changes that leave the red cases: drop an addition, or adopt settings of a green case."""
    stated = start.stated
    additions = {
        name: DEFAULTS[name]
        for each in coverage.reds
        for name, value in each.cell.stated.items()
        if value != DEFAULTS[name] and name not in (*SAME, *KEPT)
    }
    found_changes: list[Changes] = [{name: value} for name, value in additions.items()]
    for cell in evidence.cells_with(versions):
        if not cell.green or not has_same_goal(stated, cell.stated):
            continue
        changes: Changes = {
            name: value
            for name, value in cell.stated.items()
            if value != stated.get(name) and (name in SAME or value != DEFAULTS[name]) and name != "world_size"
        }
        if 0 < len(changes) <= MAX_CHANGES and not changes.keys() & set(KEPT):
            found_changes.append(changes)
    unique = {tuple(sorted(each.items())): each for each in found_changes if changes_settings_only(start, each)}
    return sorted(unique.values(), key=len)


def changed_options(start: Options, changes: Mapping[str, Value]) -> Options | None:
    """Return options with some of them changed; None if the combination is illegal."""
    options = jobs.nearest_legal(replace(start, **changes), [])  # type: ignore[arg-type]  # values of options, from cases
    return None if options.why_illegal else options


def options_of(job: TrainingJob) -> Options:
    if job.options is None:
        raise ValueError("a job without parsed options has nothing to change")
    return job.options


def by_versions(
    job: TrainingJob,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    fixes: Mapping[str, Remedy],
) -> VersionMove | None:
    """Return the nearest set on which the unchanged job is green; failing that, with other settings."""
    options = options_of(job)
    uses, reds = nearest_sets.used_packages(options), evidence.coverage(options, versions).reds
    in_order = [
        each
        for each in nearest_sets.nearest_first(versions, evidence.columns, uses)
        if nearest_sets.differing_packages(versions, each, uses)
    ]
    for column in in_order:
        proof = proving_case(options, evidence.coverage(options, column.pins), reds)
        if proof is not None:
            rest = unmeasured_settings(options, [proof])
            return VersionMove(
                column=column, moves=version_moves(versions, column, uses), proof=proof.outcome.cell, rest=rest
            )
    for column in in_order:
        coverage = evidence.coverage(options, column.pins)
        repair = by_settings(job, replace(coverage, reds=(*coverage.reds, *reds)), column.pins, evidence, fixes)
        if repair is not None and repair.texts:
            return VersionMove(
                column=column,
                moves=version_moves(versions, column, uses),
                proof=repair.proof.outcome.cell,
                rest=repair.rest,
                settings=repair,
            )
    return None


def sound_set(versions: Mapping[str, str], matrix: Grid) -> VersionMove | None:
    """Return the nearest set on which the most basic use of the installed packages is green."""
    for column in nearest_sets.nearest_first(versions, matrix.sets, tuple(versions)):
        for call, packages in reversed(nearest_sets.BASIC_CALLS.items()):
            outcome = matrix.lookup(f"api-{call}", column.key)
            if set(packages) <= versions.keys() and outcome is not None and outcome.verdict is Verdict.PASS:
                return VersionMove(
                    column=column,
                    moves=version_moves(versions, column, tuple(versions)),
                    proof=outcome.cell,
                    plainest=call,
                )
    return None


def version_moves(versions: Mapping[str, str], column: SetRecord, names: Iterable[str]) -> dict[str, str]:
    """Return the packages to move, with their versions as PyPI lists them."""
    return {
        name: nearest_sets.without_build(column.pins[name])
        for name in nearest_sets.differing_packages(versions, column, names)
    }
