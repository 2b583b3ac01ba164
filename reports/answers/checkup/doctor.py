"""Reports whether an environment and the configuration of a job are sound, as far as measured, and what to change.

The report calls everything that no case shows unknown, and names the nearest measured set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from matrix.errors import UserError
from matrix.keys import local_version
from reports.answers.checkup import problems as found
from reports.answers.checkup import repairs
from reports.answers.checkup.installed import short
from reports.answers.checkup.places import places_of
from reports.answers.checkup.questions import open_questions, unstated_versions
from reports.answers.diagnosis.diagnose import causes
from reports.answers.diagnosis.signatures import CauseKind
from reports.answers.judgement import coverage, nearest_sets
from reports.answers.judgement.facts import facts_of
from reports.answers.judgement.flows import flows_of
from reports.answers.judgement.judge import JobStatus, JudgedJob, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cases.space.options import Options
    from matrix.known.conditions import Facts
    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.checkup.installed import Installed
    from reports.answers.checkup.places import EvidencePlace
    from reports.answers.checkup.problems import CheckupProblem
    from reports.answers.checkup.repairs import Repair, VersionMove
    from reports.answers.configuration.job import TrainingJob
    from reports.answers.diagnosis.diagnose import Cause
    from reports.answers.fixes.remedies import Remedy
    from reports.answers.judgement.coverage import MeasuredCell, MeasuredCells
    from reports.answers.judgement.judge import Judgement
    from reports.answers.judgement.known_errors import KnownError, MeasuredErrors
    from reports.results.grid import Grid


@dataclass(frozen=True, kw_only=True)
class Checkup:
    """The result of a check.

    ``same`` are the measured sets that have the environment's versions; ``nearest`` is the nearest set if none has.
    ``measured``: the job, or without a job the environment, was measured with exactly these versions.
    ``differences`` lists other differences from these sets: their Python, or the build of torch.
    """

    installed: Installed
    job: TrainingJob | None
    device: str
    status: JobStatus
    same: tuple[str, ...]
    nearest: SetRecord | None
    problems: tuple[CheckupProblem, ...]
    measured: bool = False
    possible: tuple[CheckupProblem, ...] = ()  # of what no file states
    notes: tuple[KnownError, ...] = ()
    in_code: tuple[KnownError, ...] = ()
    differences: tuple[str, ...] = ()
    greens: tuple[MeasuredCell, ...] = ()
    repair: Repair | None = None
    alternative: Repair | None = None
    pins: VersionMove | None = None
    unknown: tuple[str, ...] = ()
    known_red: tuple[Cause, ...] = ()
    places: tuple[EvidencePlace, ...] = ()  # where the evidence was measured
    changed_defaults: tuple[str, ...] = ()  # by the move to other versions, of what the job does not state
    used_later: tuple[str, ...] = ()  # names that functions of installed packages use and that are not there

    @property
    def sound(self) -> bool:
        return not self.problems

    def chosen(self, *, give_up: bool = False) -> Repair | None:
        """Return the change to write to the files, verified on a set with the environment's versions."""
        tried = (self.repair, self.alternative if give_up else None)
        return next((each for each in tried if each is not None and each.texts), None)


def examine(
    installed: Installed,
    job: TrainingJob | None,
    grids: Mapping[str, Grid],
    fixes: Mapping[str, Mapping[str, Remedy]],
    known: MeasuredErrors | None = None,
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
    on_gpus = [name for name in devices if name == "cuda" and nearest_sets.is_for_gpus(torch)]
    on_cpu = [name for name in devices if name == "cpu"]
    in_order = (on_cpu or on_gpus) if job is not None and job.on_cpu else [*on_gpus, *on_cpu]
    if not in_order:
        raise UserError(
            f"torch {torch} is not built for the GPUs of these results ({', '.join(devices)}); give CPU results"
        )
    first: Checkup | None = None
    for name in in_order:
        result = checkup(installed, job, grids[name], fixes[name], device=name, known=known, cpu=grids.get("cpu"))
        if name == "cpu" and on_gpus and job is not None and not job.on_cpu:
            result = moved_on_gpus(result, job, grids, fixes, on_gpus[0], known)
        if result.measured:
            return result
        first = first or result
    return first or result


def moved_on_gpus(
    result: Checkup,
    job: TrainingJob,
    grids: Mapping[str, Grid],
    fixes: Mapping[str, Mapping[str, Remedy]],
    device: str,
    known: MeasuredErrors | None,
) -> Checkup:
    """Replace the set that a CPU shows as green by one that GPUs show as green, since the job runs on GPUs."""
    if result.pins is None or job.options is None:
        return result
    versions, evidence = result.installed.versions, coverage.MeasuredCells(grids[device])
    reds = coverage.MeasuredCells(grids["cpu"]).coverage(job.options, versions).reds
    is_red = red_test(job, judged_job(job, device="cuda"), evidence, known)
    pins = repairs.by_versions(job, versions, evidence, fixes[device], is_red, reds)
    on_cpu = f"no GPU measured such a job as green; on a CPU it is green with {result.pins.column.key}"
    return replace(result, pins=pins, unknown=result.unknown if pins else (*result.unknown, on_cpu))


def red_test(
    job: TrainingJob, judged: JudgedJob, evidence: MeasuredCells, known: MeasuredErrors | None
) -> repairs.IsRed:
    """Return a test if the job is red with changed options and versions."""

    def is_red(changed: Options, with_versions: Mapping[str, str]) -> bool:
        facts = facts_with(job, changed, device=str(judged.facts["device"]))
        again = judge(replace(judged, options=changed, facts=facts), with_versions, evidence, known)
        return again.status is JobStatus.RED

    return is_red


def checkup(
    installed: Installed,
    job: TrainingJob | None,
    matrix: Grid,
    fixes: Mapping[str, Remedy],
    *,
    device: str = "cpu",
    known: MeasuredErrors | None = None,
    cpu: Grid | None = None,
) -> Checkup:
    """Check an environment against the results of one device, with or without a job."""
    same = [each for each in matrix.sets if is_same(installed, each)]
    nearest = nearest_sets.nearest_first(installed.versions, matrix.sets, tuple(installed.versions))[0]
    uses = nearest_sets.used_packages(job.options) if job and job.options else tuple(installed.versions)
    broken = tuple(found.environment_problems(installed, matrix, uses))
    if job is None or job.options is None:
        return Checkup(
            installed=installed,
            job=job,
            device=device,
            status=JobStatus.RED if broken else JobStatus.UNKNOWN if job or not same else JobStatus.GREEN,
            same=tuple(each.key for each in same),
            nearest=None if same else nearest,
            problems=broken,
            measured=bool(same) and job is None,
            differences=tuple(environment_differences(installed, same)),
            pins=repairs.sound_set(installed.versions, matrix) if broken else None,
            unknown=why_not_judged(job) if job else (),
            known_red=tuple(known_red_causes(matrix, same or [nearest])),
            places=places_of_sets(matrix, same or [nearest]),
        )
    return checkup_of_job(installed, job, matrix, fixes, device=device, same=same, broken=broken, known=known, cpu=cpu)


def why_not_judged(job: TrainingJob) -> tuple[str, ...]:
    """Return why a job without a point in the option space is unknown."""
    if job.purpose:
        return ()
    return (f"not measured with {' and '.join(job.forcing)}" if job.forcing else "no such job was measured",)


def checkup_of_job(
    installed: Installed,
    job: TrainingJob,
    matrix: Grid,
    fixes: Mapping[str, Remedy],
    *,
    device: str,
    same: Sequence[SetRecord],
    broken: tuple[CheckupProblem, ...],
    known: MeasuredErrors | None = None,
    cpu: Grid | None = None,
) -> Checkup:
    options, versions = repairs.options_of(job), installed.versions
    on_cpu = job.on_cpu or not nearest_sets.is_for_gpus(versions.get("torch", ""))
    evidence = coverage.MeasuredCells(matrix, on_cpu=on_cpu)
    judged = judged_job(job, device="cpu" if on_cpu else "cuda")
    cells_of_cpu = coverage.MeasuredCells(cpu) if cpu is not None and not on_cpu and device != "cpu" else None
    judgement = judge(judged, versions, evidence, known, cells_of_cpu)
    is_red = red_test(job, judged, evidence, known)
    training = judgement.training
    nothing = not (training.reds or training.greens or training.machine_reds)
    likely = (
        tuple(found.inferred_problems(options, versions, evidence))
        if nothing and not (judged.assumed or judged.patched)
        else ()
    )
    problems = (*broken, *found.missing_packages(installed, options), *found.job_problems(judgement), *likely)
    uses = nearest_sets.used_packages(options)
    candidates = nearest_sets.nearest_first(versions, matrix.sets, uses)[:1] if nothing else []
    repair = repair_of(job, judgement, versions, evidence, fixes, is_red)
    solved = repair is not None and bool(repair.texts) and repair.complete
    unmeasured = bool(candidates) and bool(nearest_sets.differing_packages(versions, candidates[0], uses))
    needs_move = broken or (
        not solved and judgement.status is not JobStatus.GREEN and (problems or unmeasured)
    )  # otherwise moving gains nothing
    return Checkup(
        installed=installed,
        job=job,
        device=device,
        status=JobStatus.RED if problems else judgement.status,
        same=tuple(each.key for each in same),
        nearest=candidates[0] if unmeasured else None,
        problems=problems,
        measured=any(each.greens or each.reds or each.machine_reds for each in judgement.coverages.values()),
        possible=tuple(found.possible_problems(judgement)),
        notes=judgement.notes,
        in_code=judgement.in_code,
        differences=tuple(environment_differences(installed, (*same, *covered_sets(judgement)))),
        greens=judgement.greens,
        repair=repair,
        alternative=repairs.by_giving_up(job, versions, evidence, is_red) if training.reds and not solved else None,
        pins=repairs.by_versions(job, versions, evidence, fixes, is_red) if needs_move else None,
        unknown=(
            *unstated_versions(installed, options),
            *open_questions(judged, judgement, versions, evidence, candidates),
        ),
        places=places_of(covering_cells(judgement), matrix) or places_of_sets(matrix, same or candidates),
    )


def repair_of(
    job: TrainingJob,
    judgement: Judgement,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    fixes: Mapping[str, Remedy],
    is_red: repairs.IsRed,
) -> Repair | None:
    """Return the change of settings that makes the first red part of a job green."""
    if not judgement.reds:
        return None
    first = str(judgement.reds[0].cell.stated["flow"])
    reds = tuple(each for each in judgement.reds if each.cell.stated["flow"] == first)
    coverage_of_first = replace(judgement.coverages[first], reds=reds)
    return repairs.by_settings(job, coverage_of_first, versions, evidence, fixes, first, is_red)


def judged_job(job: TrainingJob, *, device: str) -> JudgedJob:
    """Return what a configuration states of a job, and what it leaves open."""
    options, flows = repairs.options_of(job), flows_of(job.arguments)
    assumed = tuple(name for name in coverage.GOAL if name in job.sources and job.sources[name].config is None)
    facts = facts_with(job, options, device=device)
    return JudgedJob(
        options=options,
        flows=flows,
        facts=facts,
        assumed=assumed,
        forcing=job.forcing,
        corrected=job.corrected,
        own_trainer=job.own_trainer,
        patched=job.patched,
    )


def facts_with(job: TrainingJob, options: Options, *, device: str) -> Facts:
    """Return the facts of a job with these options."""
    return facts_of(options, flows_of(job.arguments), device=device, arguments=job.arguments, trainer=job.trainer)


def is_same(installed: Installed, column: SetRecord) -> bool:
    return nearest_sets.is_plain(column) and not nearest_sets.differing_packages(
        installed.versions, column, tuple(installed.versions)
    )


def covered_sets(judgement: Judgement) -> Iterator[SetRecord]:
    for each in judgement.coverages.values():
        yield from (green.column for green in each.greens)
        yield from (red.cell.column for red in (*each.reds, *each.machine_reds))


def covering_cells(judgement: Judgement) -> Iterator[Outcome]:
    for each in judgement.coverages.values():
        yield from (green.outcome for green in each.greens)
        yield from (red.cell.outcome for red in (*each.reds, *each.machine_reds))


def places_of_sets(matrix: Grid, columns: Iterable[SetRecord]) -> tuple[EvidencePlace, ...]:
    return places_of(grid_of_sets(matrix, {column.key for column in columns}).cells.values(), matrix)


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


def known_red_causes(matrix: Grid, columns: Iterable[SetRecord]) -> tuple[Cause, ...]:
    """Return the causes of red cells on some sets."""
    keys = {column.key for column in columns}
    return tuple(
        each
        for each in causes(grid_of_sets(matrix, keys))
        if not (each.signature and each.signature.kind is CauseKind.MACHINE)
    )


def grid_of_sets(matrix: Grid, keys: set[str]) -> Grid:
    verdicts = {cell: verdict for cell, verdict in matrix.verdicts.items() if cell[1] in keys}
    cells = {cell: matrix.cells[cell] for cell in verdicts}
    return replace(matrix, sets=tuple(each for each in matrix.sets if each.key in keys), cells=cells, verdicts=verdicts)
