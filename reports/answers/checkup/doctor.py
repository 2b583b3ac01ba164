"""Reports whether an environment and the configuration of a job are sound, as far as measured, and what to change.

The report calls everything that no case shows unknown, and names the nearest measured set. A problem is *inferred* if
it was measured on the sets around the environment's versions, or on every set that ran such a case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED
from matrix.errors import UserError
from matrix.keys import local_version
from reports.answers.checkup import coverage, nearest_sets, repairs
from reports.answers.checkup.installed import short
from reports.answers.diagnosis.diagnose import causes, diagnose, symptom
from reports.answers.diagnosis.signatures import CauseKind
from reports.results.known_results import address
from reports.results.wording import headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cases.space.options import Options
    from matrix.run.outcome import SetRecord
    from reports.answers.checkup.coverage import JobCoverage, MeasuredCell, MeasuredCells, Red
    from reports.answers.checkup.installed import Installed
    from reports.answers.checkup.repairs import Repair, VersionMove
    from reports.answers.configuration.job import TrainingJob
    from reports.answers.diagnosis.diagnose import Cause
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.fixes.remedies import Remedy
    from reports.results.grid import Grid

UNEXPLAINED: Final = "unexplained: no signature fits"
ENOUGH: Final = 3  # sets that must agree before a failure counts as one of all sets


class JobStatus(StrEnum):
    """The status of a job according to the measured cells."""

    GREEN = "green"
    RED = "red"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class CheckupProblem:
    """A problem of an environment or job; ``inferred`` names the sets it is inferred from if it was not measured."""

    what: str
    why: str = ""
    links: tuple[str, ...] = ()
    shown_by: str = ""
    inferred: str = ""
    of_job: bool = False  # a change of the job's settings can solve it


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """The result of a check.

    ``same`` are the measured sets that have the environment's versions; ``nearest`` is the nearest set if none has.
    ``differences`` lists other differences from these sets: their Python, or the build of torch.
    """

    installed: Installed
    job: TrainingJob | None
    device: str
    status: JobStatus
    same: tuple[str, ...]
    nearest: SetRecord | None
    problems: tuple[CheckupProblem, ...]
    differences: tuple[str, ...] = ()
    greens: tuple[MeasuredCell, ...] = ()
    repair: Repair | None = None
    alternative: Repair | None = None
    pins: VersionMove | None = None
    unknown: tuple[str, ...] = ()
    known_red: tuple[Cause, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.problems

    @property
    def measured(self) -> bool:
        """True if the job, or without a job the environment, was measured with exactly these versions."""
        if self.job is None:
            return bool(self.same)
        return bool(self.greens) or any(each.of_job and not each.inferred for each in self.problems)

    def chosen(self, *, give_up: bool = False) -> Repair | None:
        """Return the change to write to the files, verified on a set with the environment's versions."""
        tried = (self.repair, self.alternative if give_up else None)
        return next((each for each in tried if each is not None and each.texts), None)


def examine(
    installed: Installed, job: TrainingJob | None, grids: Mapping[str, Grid], fixes: Mapping[str, Mapping[str, Remedy]]
) -> Checkup:
    """Check against GPU results if they have these versions and the job runs on GPUs, otherwise against CPU results.

    Raises:
        UserError: no results apply to such an environment.
    """
    devices = [name for name in grids if any(map(nearest_sets.is_plain, grids[name].sets))]
    if not devices:
        raise UserError(
            "these results have no set that consists of the six packages only; give results of `ftmatrix run`"
        )
    torch = installed.versions.get("torch", "")
    on_gpus = [name for name in devices if name != "cpu" and nearest_sets.is_for_gpus(torch)]
    on_cpu = [name for name in devices if name == "cpu"]
    in_order = (on_cpu or on_gpus) if job is not None and job.on_cpu else [*on_gpus, *on_cpu]
    if not in_order:
        raise UserError(
            f"torch {torch} is not built for the GPUs of these results ({', '.join(devices)}); give CPU results"
        )
    for name in in_order:
        result = checkup(installed, job, grids[name], fixes[name], device=name)
        if result.measured:
            break
    return result


def checkup(
    installed: Installed, job: TrainingJob | None, matrix: Grid, fixes: Mapping[str, Remedy], *, device: str = "cpu"
) -> Checkup:
    """Check an environment against the results of one device, with or without a job."""
    same = [each for each in matrix.sets if is_same(installed, each)]
    nearest = nearest_sets.nearest_first(installed.versions, matrix.sets, tuple(installed.versions))[0]
    uses = nearest_sets.used_packages(job.options) if job and job.options else tuple(installed.versions)
    broken = tuple(environment_problems(installed, matrix, uses))
    if job is None or job.options is None:
        return Checkup(
            installed=installed,
            job=job,
            device=device,
            status=JobStatus.RED if broken else JobStatus.UNKNOWN if job or not same else JobStatus.GREEN,
            same=tuple(each.key for each in same),
            nearest=None if same else nearest,
            problems=broken,
            differences=tuple(environment_differences(installed, same)),
            pins=repairs.sound_set(installed.versions, matrix) if broken else None,
            unknown=("no such job was measured",) if job else (),
            known_red=tuple(known_red_causes(matrix, same or [nearest])),
        )
    return checkup_of_job(installed, job, matrix, fixes, device=device, same=same, broken=broken)


def checkup_of_job(
    installed: Installed,
    job: TrainingJob,
    matrix: Grid,
    fixes: Mapping[str, Remedy],
    *,
    device: str,
    same: Sequence[SetRecord],
    broken: tuple[CheckupProblem, ...],
) -> Checkup:
    options, versions = repairs.options_of(job), installed.versions
    evidence = coverage.MeasuredCells(matrix, on_cpu=job.on_cpu)
    job_coverage = evidence.coverage(options, versions)
    absent = tuple(missing_packages(installed, options))
    measured_red = tuple(cell_problem(each) for each in job_coverage.reds)
    likely = (
        ()
        if job_coverage.reds or job_coverage.greens or job_coverage.machine_reds
        else tuple(inferred_problems(options, versions, evidence))
    )
    problems = (*broken, *absent, *measured_red, *likely)
    uses = nearest_sets.used_packages(options)
    candidates = (
        []
        if job_coverage.greens or job_coverage.reds or job_coverage.machine_reds
        else nearest_sets.nearest_first(versions, matrix.sets, uses)[:1]
    )
    repair = repairs.by_settings(job, job_coverage, versions, evidence, fixes) if job_coverage.reds else None
    solved = repair is not None and bool(repair.texts)
    unmeasured = bool(candidates) and bool(nearest_sets.differing_packages(versions, candidates[0], uses))
    needs_move = broken or (
        not solved and not job_coverage.is_green and (problems or unmeasured)
    )  # otherwise moving gains nothing
    return Checkup(
        installed=installed,
        job=job,
        device=device,
        status=JobStatus.RED if problems else JobStatus.GREEN if job_coverage.is_green else JobStatus.UNKNOWN,
        same=tuple(each.key for each in same),
        nearest=candidates[0] if unmeasured else None,
        problems=problems,
        differences=tuple(environment_differences(installed, (*same, *covered_sets(job_coverage)))),
        greens=job_coverage.greens,
        repair=repair,
        alternative=repairs.by_giving_up(job, versions, evidence) if job_coverage.reds and not solved else None,
        pins=repairs.by_versions(job, versions, evidence, fixes) if needs_move else None,
        unknown=tuple(open_questions(options, job_coverage, versions, evidence, candidates)),
    )


def is_same(installed: Installed, column: SetRecord) -> bool:
    return nearest_sets.is_plain(column) and not nearest_sets.differing_packages(
        installed.versions, column, tuple(installed.versions)
    )


def covered_sets(job_coverage: JobCoverage) -> Iterator[SetRecord]:
    yield from (each.column for each in job_coverage.greens)
    yield from (red.cell.column for red in (*job_coverage.reds, *job_coverage.machine_reds))


def environment_differences(installed: Installed, columns: Iterable[SetRecord]) -> Iterator[str]:
    """Yield differences from the measured sets other than package versions."""
    unique = {column.key: column for column in columns}.values()
    pythons = {
        column.python for column in unique if installed.python and short(column.python) != short(installed.python)
    }
    if pythons:
        yield f"Python {' and '.join(sorted(pythons))}, but this environment has {installed.python}"
    torch = installed.versions.get("torch", "")
    measured = {column.pins["torch"] for column in unique if local_version(column.pins["torch"])}
    builds = measured - {torch} if local_version(torch) else set()
    if builds:
        yield f"torch {' and '.join(sorted(builds))}, but this environment has {torch}"


def environment_problems(installed: Installed, matrix: Grid, uses: Sequence[str]) -> Iterator[CheckupProblem]:
    """Yield problems of every job with these packages: conflicts, and basic uses that fail."""
    yield from (CheckupProblem(what=note) for note in (*installed.broken, *installed.conflicts))
    for column in matrix.sets:
        for call, packages in nearest_sets.BASIC_CALLS.items():
            outcome = matrix.lookup(f"api-{call}", column.key)
            concerns = set(packages) <= set(uses) and nearest_sets.is_plain(column)
            if outcome is None or outcome.verdict not in RED or not concerns:
                continue
            if not nearest_sets.differing_packages(installed.versions, column, packages):
                best = next(iter(diagnose(symptom(outcome, column.pins))), None)
                yield CheckupProblem(
                    what=f"a basic use already fails: {headline(outcome)}",
                    why=why(best.signature if best else None),
                    links=links(best.signature if best else None),
                    shown_by=f"{outcome.cell} ({outcome.verdict.value})",
                )


def known_red_causes(matrix: Grid, columns: Iterable[SetRecord]) -> tuple[Cause, ...]:
    """Return the causes of red cells on some sets."""
    keys = {column.key for column in columns}
    return tuple(
        each
        for each in causes(grid_of_sets(matrix, keys))
        if not (each.signature and each.signature.kind is CauseKind.MACHINE)
    )


def grid_of_sets(matrix: Grid, keys: set[str]) -> Grid:
    cells = {cell: each for cell, each in matrix.cells.items() if cell[1] in keys}
    return replace(matrix, sets=tuple(each for each in matrix.sets if each.key in keys), cells=cells)


def missing_packages(installed: Installed, options: Options) -> Iterator[CheckupProblem]:
    missing = [name for name in nearest_sets.used_packages(options) if name not in installed.versions]
    if missing:
        yield CheckupProblem(what=f"the job needs {' and '.join(missing)}, which is not installed: install it")


def cell_problem(red: Red, inference: str = "") -> CheckupProblem:
    outcome = red.cell.outcome
    near = f", which differs in {', '.join(red.near)}; every equally near case is red" if red.near else ""
    return CheckupProblem(
        what=headline(outcome),
        why=why(red.cell.signature),
        links=links(red.cell.signature),
        shown_by=f"{outcome.cell} ({outcome.verdict.value}){near}",
        inferred=inference,
        of_job=True,
    )


def why(signature: Signature | None) -> str:
    return signature.cause if signature else UNEXPLAINED


def links(signature: Signature | None) -> tuple[str, ...]:
    return tuple(map(address, signature.links)) if signature else ()


def inferred_problems(
    options: Options, versions: Mapping[str, str], evidence: MeasuredCells
) -> Iterator[CheckupProblem]:
    """Yield problems of versions between measured ones: red on both sides of them, or on every set that ran the job.

    Leaves out causes whose signature excludes these versions.
    """
    if not set(nearest_sets.used_packages(options)) <= versions.keys():
        return
    around = nearest_sets.enclosing_sets(versions, evidence.columns, nearest_sets.used_packages(options))
    older, newer = (evidence.coverage(options, column.pins).reds if column else () for column in around or (None, None))
    both = {each.cause for each in older if not each.near}
    shared = [each for each in newer if each.cause in both and not each.near]
    if around and shared:
        where = f"{around[0].key} and {around[1].key}, between which these versions lie"
        yield from (cell_problem(red, where) for red in shared if not is_excluded(red, versions))
        return
    reds = list(reds_everywhere(options, versions, evidence))
    if not any(is_excluded(red, versions) for red, _ in reds):
        yield from (cell_problem(red, where) for red, where in reds)


def is_excluded(red: Red, versions: Mapping[str, str]) -> bool:
    """Tell if the signature excludes these versions."""
    return red.cell.signature is not None and red.cell.signature.denies(versions)


def reds_everywhere(
    options: Options, versions: Mapping[str, str], evidence: MeasuredCells
) -> Iterator[tuple[Red, str]]:
    """Yield red cells if every set that ran the job is red, for any cause, and these versions lie between those sets.

    Sets that differ in no package that the job uses count once. Failures caused by the machine do not count.
    """
    uses = nearest_sets.used_packages(options)
    distinct: dict[tuple[object, ...], SetRecord] = {}
    for column in evidence.columns:
        distinct.setdefault(tuple(nearest_sets.public(column.pins[name]) for name in uses), column)
    covered = [(column, evidence.coverage(options, column.pins)) for column in distinct.values()]
    tried = [(column, each) for column, each in covered if each.greens or any(not red.near for red in each.reds)]
    machine_reds = sum(bool(each.machine_reds) and not each.greens and not each.reds for _, each in covered)
    within = nearest_sets.is_within(versions, [column for column, _ in tried], uses)
    if len(tried) >= ENOUGH and within and all(each.reds for _, each in tried):
        ran = "sets of versions on which such a case ran"
        machine = f"{len(tried)} of {len(tried) + machine_reds} {ran}; on the others it is red because of the machine"
        where = machine if machine_reds else f"all {len(tried)} {ran}"
        yield from ((red, where) for red in tried[-1][1].reds)


def open_questions(
    options: Options,
    job_coverage: JobCoverage,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    candidates: Sequence[SetRecord],
) -> Iterator[str]:
    """Yield the questions that no cell answers."""
    for red in job_coverage.machine_reds:
        yield f"{red.cell.outcome.cell} is red because of the machine that it ran on: {why(red.cell.signature)}"
    if job_coverage.greens:
        rest = coverage.unmeasured_settings(options, job_coverage.greens)
        if rest:
            yield f"not measured together with the rest: {', '.join(rest)}"
        return
    if job_coverage.reds or job_coverage.machine_reds:
        return
    for column in candidates:
        differing = nearest_sets.differing_packages(versions, column, nearest_sets.used_packages(options))
        if not differing:
            yield f"no case like this job ran on {column.key}, which has these versions"
            continue
        nearby = evidence.coverage(options, column.pins)
        status = "red" if nearby.reds else "green" if nearby.greens else "not measured either"
        differs = ", ".join(f"{name} {column.pins[name]} instead of {versions.get(name, 'none')}" for name in differing)
        yield f"these versions were not measured; on the nearest set, {column.key} ({differs}), the job is {status}"
    for cell in job_coverage.nearest[:2]:
        differing_options = ", ".join(
            f"{name}={cell.stated.get(name, '-')}" for name in coverage.differing_options(options.stated, cell.stated)
        )
        word = "green" if cell.green else "red"
        yield f"the nearest measured case is {word}: {cell.outcome.cell}, which has {differing_options}"
