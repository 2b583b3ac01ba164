"""Judges a job: given versions, a device and a job, what is known? Every command that answers asks this one question.

The judgement is *red* if a measured cell that the job covers is red, or if an error of these versions has a condition
that the job fulfils. It is *green* if training and every certain later part are green, and *unknown* otherwise. What
nobody stated (an assumed launcher, a resume that may never come) makes a red cell only possible, which is no problem.
Nor is a job green if that needs an assumed method, or if it is red with another launcher.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from reports.answers.judgement.coverage import unmeasured_settings
from reports.answers.judgement.flows import JobFlows, in_flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from cases.space.options import Options
    from matrix.known.conditions import Facts
    from reports.answers.judgement.coverage import JobCoverage, MeasuredCell, MeasuredCells, Red
    from reports.answers.judgement.known_errors import KnownError, MeasuredErrors

# What a launcher that nobody gave may be; a red cell counts if it is red with each of them.
LAUNCHERS: Final = ("single", "ddp")


class JobStatus(StrEnum):
    """The status of a job according to everything published."""

    GREEN = "green"
    RED = "red"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class JudgedJob:
    """A job as it is judged.

    ``assumed`` names options of its goal that nobody stated. ``forcing`` are the settings that no cell measures; each
    of them leaves the judgement unknown. ``corrected`` are the ids of errors that a framework corrects itself, at least
    in some of its releases: the job may not meet them. With ``own_trainer``, a framework trains by a subclass of the
    Trainer, so that the job may not meet errors of the Trainer. If it is ``patched``, a framework replaces parts of the
    libraries, so that no red cell of theirs is one of the job.
    """

    options: Options
    flows: JobFlows = field(default_factory=JobFlows)
    facts: Facts = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    forcing: tuple[str, ...] = ()
    corrected: tuple[str, ...] = ()
    own_trainer: bool = False
    patched: bool = False


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is known of a job with some versions on one device.

    ``coverages`` has the measured cells by flow. ``possible`` reds and errors depend on what nobody stated; errors
    ``in_code`` need a call that the user's code may make; ``notes`` are chosen behaviour, and wrong numbers in logs.
    """

    status: JobStatus
    coverages: Mapping[str, JobCoverage]
    reds: tuple[Red, ...] = ()
    possible_reds: tuple[Red, ...] = ()
    errors: tuple[KnownError, ...] = ()
    possible_errors: tuple[KnownError, ...] = ()
    in_code: tuple[KnownError, ...] = ()
    notes: tuple[KnownError, ...] = ()
    unmeasured: tuple[str, ...] = ()  # certain flows without a cell
    unseen: tuple[str, ...] = ()  # settings that no green cell of the device has, with any versions
    beside: Mapping[str, JobCoverage] = field(
        default_factory=dict
    )  # what a CPU shows of these flows, for a job on GPUs

    @property
    def training(self) -> JobCoverage:
        """The cells of the job's first flow."""
        return next(iter(self.coverages.values()))

    @property
    def greens(self) -> tuple[MeasuredCell, ...]:
        return tuple(green for each in self.coverages.values() if each.is_green for green in each.greens)


def judge(
    job: JudgedJob,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    known: MeasuredErrors | None = None,
    on_cpu: MeasuredCells | None = None,
) -> Judgement:
    """Judge a job by the cells of its device and by the known errors.

    For a job on GPUs, ``on_cpu`` has the cells of a CPU. They stand beside the judgement and do not decide it.
    """
    coverages = dict(covered(job, versions, evidence, (*job.flows.certain, *job.flows.possible)))
    certain = [each for each in job.flows.certain if each in coverages]
    reds = list(one_per_cause(red for flow in certain for red in coverages[flow].reds))
    causes = {red.cause for red in reds}
    later = one_per_cause(red for flow in job.flows.possible if flow in coverages for red in coverages[flow].reds)
    sure = [red for red in reds if is_sure(red, job, versions, evidence)]
    elsewhere = one_per_cause(reds_of_other_launchers(job, versions, evidence))
    unsure = [red for red in (*later, *elsewhere) if red.cause not in causes]
    possible = [*(red for red in reds if red not in sure), *one_per_cause(unsure)]
    met = list(known.met_by(job.facts, versions, doubtful_facts(job))) if known is not None else []
    bugs = [each for each in met if each.is_failure and not each.in_code]
    certain_bugs = [each for each in bugs if each.certain and each.finding.id not in job.corrected]
    errors = tuple(each for each in certain_bugs if not is_shown_by(each, sure))
    unmeasured = tuple(flow for flow in job.flows.certain if flow not in coverages or not has_evidence(coverages[flow]))
    unseen = unmeasured_settings(job.options, evidence.greens)
    return Judgement(
        status=status(job, sure, errors, coverages, (*unmeasured, *unseen, *elsewhere)),
        coverages=coverages,
        reds=tuple(sure),
        possible_reds=tuple(possible),
        errors=errors,
        possible_errors=tuple(
            each for each in bugs if each not in certain_bugs and not is_shown_by(each, [*sure, *possible])
        ),
        in_code=tuple(each for each in met if each.in_code),
        notes=tuple(each for each in met if not each.is_failure and each.certain),
        unmeasured=unmeasured,
        unseen=unseen,
        beside=dict(covered(job, versions, on_cpu, unmeasured)) if on_cpu is not None else {},
    )


def doubtful_facts(job: JudgedJob) -> tuple[str, ...]:
    ranks = ("ranks",) if "strategy" in job.assumed else ()
    return (*job.assumed, *ranks, *(("front_end", "trainer") if job.own_trainer else ()))


def covered(
    job: JudgedJob, versions: Mapping[str, str], evidence: MeasuredCells, flows: Iterable[str]
) -> Iterator[tuple[str, JobCoverage]]:
    for flow in flows:
        options = in_flow(job.options, flow)
        if options is not None:
            yield flow, evidence.coverage(options, versions)


def has_evidence(coverage: JobCoverage) -> bool:
    return bool(coverage.greens or coverage.reds)


def status(
    job: JudgedJob,
    reds: Iterable[Red],
    errors: Iterable[KnownError],
    coverages: Mapping[str, JobCoverage],
    unknown: tuple[object, ...],
) -> JobStatus:
    if any(True for _ in reds) or any(True for _ in errors):
        return JobStatus.RED
    if unknown or job.forcing or assumed_goal(job):
        return JobStatus.UNKNOWN
    green = all(coverages[flow].is_green for flow in job.flows.certain)
    return JobStatus.GREEN if green else JobStatus.UNKNOWN


def is_sure(red: Red, job: JudgedJob, versions: Mapping[str, str], evidence: MeasuredCells) -> bool:
    """Tell if a red cell is red whatever the user means by what nobody stated."""
    if job.patched or assumed_goal(job):
        return False
    flow = str(red.cell.stated["flow"])
    return "strategy" not in job.assumed or all(
        red.cause in {each.cause for each in evidence.coverage(other, versions).reds}
        for strategy in LAUNCHERS
        if (other := launched(job.options, flow, strategy)) is not None
    )


def assumed_goal(job: JudgedJob) -> tuple[str, ...]:
    """Return what nobody stated of a job's goal, except for its launcher."""
    return tuple(name for name in job.assumed if name != "strategy")


def reds_of_other_launchers(job: JudgedJob, versions: Mapping[str, str], evidence: MeasuredCells) -> Iterator[Red]:
    """Yield what is red of a job with another launcher than the assumed one."""
    others = [each for each in LAUNCHERS if each != job.options.strategy] if "strategy" in job.assumed else []
    for strategy in others:
        for flow in job.flows.certain:
            options = launched(job.options, flow, strategy)
            if options is not None:
                yield from evidence.coverage(options, versions).reds


def launched(options: Options, flow: str, strategy: str) -> Options | None:
    ranks = 1 if strategy == "single" else 2
    return in_flow(replace(options, strategy=strategy, world_size=ranks), flow)  # type: ignore[arg-type]  # both are values


def is_shown_by(error: KnownError, reds: Iterable[Red]) -> bool:
    """Tell if one of the red cells is already the error."""
    cases = {cells.case for cells in error.finding.red}
    return any(
        red.cell.outcome.case in cases
        or (red.cell.signature is not None and error.finding.id in red.cell.signature.problems)
        for red in reds
    )


def one_per_cause(reds: Iterable[Red]) -> tuple[Red, ...]:
    """Return the first red cell of each cause: training comes before what follows from it."""
    return tuple({red.cause: red for red in reversed(list(reds))}.values())[::-1]
