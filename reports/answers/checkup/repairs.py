"""Finds changes that make a job green according to the measured cells: settings first, then versions.

A change qualifies only if the changed job covers a green case and no red one on a set with the same versions. The green
case must also have the settings of the red one that the job keeps. Fixes that a search proved (``fixes.json``) come
first, then changes that lead from a red cell of the grid to a green one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cases.space.verdict import Verdict
from matrix.search.fixes import Kind
from matrix.search.neighbours import GIVEN_UP, SETTINGS
from reports.answers.configuration import job as jobs
from reports.answers.judgement import nearest_sets
from reports.answers.judgement.coverage import DEFAULTS, GOAL, SAME, has_same_goal, unmeasured_settings
from reports.answers.judgement.flows import TRAIN, in_flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cases.space.options import Options, Value
    from matrix.run.outcome import SetRecord
    from reports.answers.configuration.configs import Config
    from reports.answers.configuration.job import TrainingJob
    from reports.answers.fixes.remedies import Remedy
    from reports.answers.judgement.coverage import JobCoverage, MeasuredCell, MeasuredCells, Red
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
IsRed = Callable[["Options", "Mapping[str, str]"], bool]  # of a job with changed options or versions


def never(_options: Options, _versions: Mapping[str, str]) -> bool:
    return False


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
    complete: bool = True  # nothing of the job is red after it

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
    hardware: str = ""  # of the green cell


def by_settings(
    job: TrainingJob,
    coverage: JobCoverage,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    fixes: Mapping[str, Remedy],
    flow: str = TRAIN,
    is_red: IsRed = never,
) -> Repair | None:
    """Return the smallest change of settings that a file can express; failing that, one that only code can.

    It makes one flow of the job green. A change after which nothing of the job ``is_red`` comes first.
    """
    changes = candidate_changes(job, coverage, versions, evidence, fixes, flow)
    return first_repair(job, changes, versions, evidence, coverage.reds, flow, is_red)


def by_giving_up(
    job: TrainingJob, versions: Mapping[str, str], evidence: MeasuredCells, is_red: IsRed = never
) -> Repair | None:
    """Return the change that gives up the least important part of the job, if its files can express it."""
    start = options_of(job)
    reds = evidence.coverage(start, versions).reds
    for name, changes in parts_to_give_up(start):
        without = changed_options(start, changes)
        if without is None:
            continue
        more = neighbouring_changes(without, evidence.coverage(without, versions), versions, evidence)
        repair = first_repair(
            job, [dict(changes), *({**changes, **each} for each in more)], versions, evidence, reds, is_red=is_red
        )
        if repair is not None and repair.texts and repair.complete:
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
    flow: str = TRAIN,
    is_red: IsRed = never,
) -> Repair | None:
    in_code: Repair | None = None
    partial: Repair | None = None
    for changes in candidates:
        patched_job = jobs.patch(job, changes, versions)
        options = patched_job[0].options if patched_job else changed_options(options_of(job), changes)
        if options is None:
            continue
        proof = proving_case_of(options, versions, evidence, reds, flow)
        if proof is None:
            continue
        texts = patched_job[1] if patched_job else {}
        complete = not is_red(options, versions)
        repair = Repair(changes=changes, options=options, proof=proof, texts=texts, complete=complete)
        if patched_job and complete:
            return repair
        if patched_job:
            partial = partial or repair
        in_code = in_code or repair
    return partial or in_code


def proving_case_of(
    options: Options,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    reds: Sequence[Red],
    flow: str = TRAIN,
) -> MeasuredCell | None:
    """Return a green case that proves a changed job in one of its flows."""
    changed = in_flow(options, flow)
    return None if changed is None else proving_case(changed, evidence.coverage(changed, versions), reds)


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
    flow: str = TRAIN,
) -> Iterator[Changes]:
    start = in_flow(options_of(job), flow) or options_of(job)
    for red in coverage.reds:
        remedy = fixes.get(red.cell.outcome.cell)
        if remedy is not None and remedy.fix.kind is Kind.SETTINGS:
            changes = remedy.fix.changes
            proven = {change.name: change.new for change in changes if not isinstance(change.new, float)}
            if changes_settings_only(start, proven):
                yield proven
    yield from neighbouring_changes(start, coverage, versions, evidence)


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
    is_red: IsRed = never,
    reds_elsewhere: Sequence[Red] = (),
) -> VersionMove | None:
    """Return the nearest set on which the unchanged job is green; failing that, with other settings.

    ``reds_elsewhere`` are red cells of another device, which the green cell must have the settings of as well.
    """
    options = options_of(job)
    uses = nearest_sets.used_packages(options)
    reds = (*evidence.coverage(options, versions).reds, *reds_elsewhere)
    in_order = [
        each
        for each in nearest_sets.nearest_first(versions, evidence.columns, uses)
        if nearest_sets.differing_packages(versions, each, uses)
    ]
    for column in in_order:
        proof = proving_case_of(options, column.pins, evidence, reds)
        if proof is not None and not is_red(options, column.pins):
            rest = unmeasured_settings(options, [proof])
            return VersionMove(
                column=column,
                moves=version_moves(versions, column, uses),
                proof=proof.outcome.cell,
                rest=rest,
                hardware=proof.outcome.hardware,
            )
    for column in in_order:
        coverage = evidence.coverage(options, column.pins)
        both = replace(coverage, reds=(*coverage.reds, *reds))
        repair = by_settings(job, both, column.pins, evidence, fixes, is_red=is_red)
        if repair is not None and repair.texts and repair.complete:
            return VersionMove(
                column=column,
                moves=version_moves(versions, column, uses),
                proof=repair.proof.outcome.cell,
                rest=repair.rest,
                settings=repair,
                hardware=repair.proof.outcome.hardware,
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
                    hardware=outcome.hardware,
                )
    return None


def version_moves(versions: Mapping[str, str], column: SetRecord, names: Iterable[str]) -> dict[str, str]:
    """Return the packages to move, with their versions as PyPI lists them."""
    return {
        name: nearest_sets.without_build(column.pins[name])
        for name in nearest_sets.differing_packages(versions, column, names)
    }
