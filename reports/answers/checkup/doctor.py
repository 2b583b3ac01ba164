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
ENOUGH: Final = 3  # sets that must agree before a failure is said to be one of all sets


class JobStatus(StrEnum):
    """The status of a job according to the measured cells."""

    GREEN = "green"
    RED = "red"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class CheckupProblem:
    """``inferred`` says from which sets, where the environment's own versions were not measured."""

    what: str
    why: str = ""
    links: tuple[str, ...] = ()
    shown_by: str = ""
    inferred: str = ""
    of_job: bool = False  # a change of the job's settings can heal it


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """``same`` are the measured sets that the environment is, ``nearest`` the next one where it is none.

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
        """Whether something is known of the job, or of the environment alone, with these very versions."""
        if self.job is None:
            return bool(self.same)
        return bool(self.greens) or any(each.of_job and not each.inferred for each in self.problems)

    def chosen(self, *, give_up: bool = False) -> Repair | None:
        """The change that may be written: verified on a set with the environment's versions."""
        tried = (self.repair, self.alternative if give_up else None)
        return next((each for each in tried if each is not None and each.texts), None)


def examine(
    installed: Installed, job: TrainingJob | None, grids: Mapping[str, Grid], fixes: Mapping[str, Mapping[str, Remedy]]
) -> Checkup:
    """By what was measured on GPUs, if that was with these versions and the job is not one on a CPU; else on a CPU.

    Raises:
        UserError: there are no results that could be of such an environment.
    """
    devices = [name for name in grids if any(map(nearest_sets.is_plain, grids[name].sets))]
    if not devices:
        raise UserError(
            "these results have no set of the six packages alone, so that no environment compares with them"
        )
    torch = installed.versions.get("torch", "")
    on_gpus = [name for name in devices if name != "cpu" and nearest_sets.is_for_gpus(torch)]
    on_cpu = [name for name in devices if name == "cpu"]
    in_order = (on_cpu or on_gpus) if job is not None and job.on_cpu else [*on_gpus, *on_cpu]
    if not in_order:
        raise UserError(
            f"torch {torch} is not built for the GPUs of these results ({', '.join(devices)}); give results of a CPU"
        )
    for name in in_order:
        found = checkup(installed, job, grids[name], fixes[name], device=name)
        if found.measured:
            break
    return found


def checkup(
    installed: Installed, job: TrainingJob | None, matrix: Grid, fixes: Mapping[str, Remedy], *, device: str = "cpu"
) -> Checkup:
    """Check an environment against the results of one device, with or without a job."""
    same = [each for each in matrix.sets if is_same(installed, each)]
    nearest = nearest_sets.nearest(installed.versions, matrix.sets, tuple(installed.versions))[0]
    uses = nearest_sets.used(job.options) if job and job.options else tuple(installed.versions)
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
            unknown=("nothing was measured of such a job",) if job else (),
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
    options, at = repairs.options_of(job), installed.versions
    evidence = coverage.MeasuredCells(matrix, on_cpu=job.on_cpu)
    found = evidence.judged(options, at)
    absent = tuple(missing_packages(installed, options))
    measured_red = tuple(problem(each) for each in found.reds)
    likely = () if found.reds or found.greens or found.machine_reds else tuple(inferred(options, at, evidence))
    problems = (*broken, *absent, *measured_red, *likely)
    uses = nearest_sets.used(options)
    off = [] if found.greens or found.reds or found.machine_reds else nearest_sets.nearest(at, matrix.sets, uses)[:1]
    repair = repairs.by_settings(job, found, at, evidence, fixes) if found.reds else None
    solved = repair is not None and bool(repair.texts)
    unmeasured = bool(off) and bool(nearest_sets.differing(at, off[0], uses))
    is_of_other_machine = broken or (
        not solved and not found.is_green and (problems or unmeasured)
    )  # else moving gains nothing
    return Checkup(
        installed=installed,
        job=job,
        device=device,
        status=JobStatus.RED if problems else JobStatus.GREEN if found.is_green else JobStatus.UNKNOWN,
        same=tuple(each.key for each in same),
        nearest=off[0] if unmeasured else None,
        problems=problems,
        differences=tuple(environment_differences(installed, (*same, *columns_of(found)))),
        greens=found.greens,
        repair=repair,
        alternative=repairs.by_giving_up(job, at, evidence) if found.reds and not solved else None,
        pins=repairs.by_versions(job, at, evidence, fixes) if is_of_other_machine else None,
        unknown=tuple(open_questions(options, found, at, evidence, off)),
    )


def is_same(installed: Installed, column: SetRecord) -> bool:
    return nearest_sets.is_plain(column) and not nearest_sets.differing(
        installed.versions, column, tuple(installed.versions)
    )


def columns_of(found: JobCoverage) -> Iterator[SetRecord]:
    yield from (each.column for each in found.greens)
    yield from (red.cell.column for red in (*found.reds, *found.machine_reds))


def environment_differences(installed: Installed, columns: Iterable[SetRecord]) -> Iterator[str]:
    """Yield differences from the measured sets other than package versions."""
    unique = {column.key: column for column in columns}.values()
    pythons = {
        column.python for column in unique if installed.python and short(column.python) != short(installed.python)
    }
    if pythons:
        yield f"Python {' and '.join(sorted(pythons))}, and here it is {installed.python}"
    torch = installed.versions.get("torch", "")
    measured = {column.pins["torch"] for column in unique if local_version(column.pins["torch"])}
    builds = measured - {torch} if local_version(torch) else set()
    if builds:
        yield f"torch {' and '.join(sorted(builds))}, and here it is {torch}"


def environment_problems(installed: Installed, matrix: Grid, uses: Sequence[str]) -> Iterator[CheckupProblem]:
    """Yield problems of every job with these packages: conflicts, and basic uses that fail."""
    yield from (CheckupProblem(what=note) for note in (*installed.broken, *installed.conflicts))
    for column in matrix.sets:
        for call, packages in nearest_sets.PLAINEST.items():
            outcome = matrix.lookup(f"api-{call}", column.key)
            concerns = set(packages) <= set(uses) and nearest_sets.is_plain(column)
            if outcome is None or outcome.verdict not in RED or not concerns:
                continue
            if not nearest_sets.differing(installed.versions, column, packages):
                best = next(iter(diagnose(symptom(outcome, column.pins))), None)
                yield CheckupProblem(
                    what=f"the plainest use already fails: {headline(outcome)}",
                    why=why(best.signature if best else None),
                    links=links(best.signature if best else None),
                    shown_by=f"{outcome.cell} ({outcome.verdict.value})",
                )


def known_red_causes(matrix: Grid, columns: Iterable[SetRecord]) -> tuple[Cause, ...]:
    """Return the causes of red cells on some sets."""
    keys = {column.key for column in columns}
    return tuple(
        each
        for each in causes(of_sets(matrix, keys))
        if not (each.signature and each.signature.kind is CauseKind.MACHINE)
    )


def of_sets(matrix: Grid, keys: set[str]) -> Grid:
    cells = {cell: each for cell, each in matrix.cells.items() if cell[1] in keys}
    return replace(matrix, sets=tuple(each for each in matrix.sets if each.key in keys), cells=cells)


def missing_packages(installed: Installed, options: Options) -> Iterator[CheckupProblem]:
    missing = [name for name in nearest_sets.used(options) if name not in installed.versions]
    if missing:
        yield CheckupProblem(what=f"the job needs {' and '.join(missing)}, and the environment has none: install it")


def problem(red: Red, inference: str = "") -> CheckupProblem:
    outcome = red.cell.outcome
    near = f", which differs in {', '.join(red.near)}; every case as near is red" if red.near else ""
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


def inferred(options: Options, at: Mapping[str, str], evidence: MeasuredCells) -> Iterator[CheckupProblem]:
    """Of versions that lie among those that were measured: what is red on both sides of them, or wherever it ran.

    What is known to happen with other versions only is not carried over.
    """
    if not set(nearest_sets.used(options)) <= at.keys():
        return
    around = nearest_sets.around(at, evidence.columns, nearest_sets.used(options))
    older, newer = (evidence.judged(options, column.pins).reds if column else () for column in around or (None, None))
    both = {each.cause for each in older if not each.near}
    shared = [each for each in newer if each.cause in both and not each.near]
    if around and shared:
        where = f"{around[0].key} and {around[1].key}, between which these versions lie"
        yield from (problem(red, where) for red in shared if not is_excluded(red, at))
        return
    found = list(everywhere(options, at, evidence))
    if not any(is_excluded(red, at) for red, _ in found):
        yield from (problem(red, where) for red, where in found)


def is_excluded(red: Red, at: Mapping[str, str]) -> bool:
    """Tell if the signature excludes these versions."""
    return red.cell.signature is not None and red.cell.signature.denies(at)


def everywhere(options: Options, at: Mapping[str, str], evidence: MeasuredCells) -> Iterator[tuple[Red, str]]:
    """What is red on all versions with which it ran, if these lie among them, for one reason or another.

    Sets that differ in no package that the job uses are one. Where it is red for a reason of the machine, nothing is
    known of the job.
    """
    uses = nearest_sets.used(options)
    differing_options: dict[tuple[object, ...], SetRecord] = {}
    for column in evidence.columns:
        differing_options.setdefault(tuple(nearest_sets.public(column.pins[name]) for name in uses), column)
    judged = [(column, evidence.judged(options, column.pins)) for column in differing_options.values()]
    tried = [(column, each) for column, each in judged if each.greens or any(not red.near for red in each.reds)]
    machine_reds = sum(bool(each.machine_reds) and not each.greens and not each.reds for _, each in judged)
    among = nearest_sets.spanned(at, [column for column, _ in tried], uses)
    if len(tried) >= ENOUGH and among and all(each.reds for _, each in tried):
        ran = "sets of versions on which such a case ran"
        machine = (
            f"{len(tried)} of {len(tried) + machine_reds} {ran}; on the rest it is red for a reason of the machine"
        )
        where = machine if machine_reds else f"all {len(tried)} {ran}"
        yield from ((red, where) for red in tried[-1][1].reds)


def open_questions(
    options: Options,
    found: JobCoverage,
    at: Mapping[str, str],
    evidence: MeasuredCells,
    off: Sequence[SetRecord],
) -> Iterator[str]:
    """Yield the questions that no cell answers."""
    for red in found.machine_reds:
        yield f"{red.cell.outcome.cell} is red for a reason of the machine that it ran on: {why(red.cell.signature)}"
    if found.greens:
        rest = coverage.unmeasured(options, found.greens)
        if rest:
            yield f"not measured together with the rest: {', '.join(rest)}"
        return
    if found.reds or found.machine_reds:
        return
    for column in off:
        differing = nearest_sets.differing(at, column, nearest_sets.used(options))
        if not differing:
            yield f"no case like this job ran on {column.key}, which has these versions"
            continue
        there = evidence.judged(options, column.pins)
        seen = "red" if there.reds else "green" if there.greens else "not measured either"
        differs = ", ".join(f"{name} {column.pins[name]} instead of {at.get(name, 'none')}" for name in differing)
        yield f"these versions were not measured; on the nearest set, {column.key} ({differs}), the job is {seen}"
    for cell in found.nearest[:2]:
        differing_options = ", ".join(
            f"{name}={cell.stated.get(name, '-')}" for name in coverage.differing_options(options.stated, cell.stated)
        )
        word = "green" if cell.green else "red"
        yield f"the nearest measured case is {word}: {cell.outcome.cell}, which has {differing_options}"
