"""Lists the questions about a job that no cell answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.answers.checkup.problems import why
from reports.answers.judgement import coverage, nearest_sets
from reports.answers.judgement.flows import WORDS
from reports.answers.judgement.judge import assumed_goal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.space.options import Options
    from matrix.run.outcome import SetRecord
    from reports.answers.checkup.installed import Installed
    from reports.answers.judgement.coverage import JobCoverage, MeasuredCells
    from reports.answers.judgement.judge import JudgedJob, Judgement


def open_questions(
    job: JudgedJob,
    judgement: Judgement,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    candidates: Sequence[SetRecord],
) -> Iterator[str]:
    """Yield the questions that no cell answers."""
    training = judgement.training
    for red in training.machine_reds:
        yield f"{red.cell.outcome.cell} is red because of the machine that it ran on: {why(red.cell.signature)}"
    if job.forcing:
        yield f"not measured with {' and '.join(job.forcing)}"
    for name in assumed_goal(job):
        yield f"no file states the {name}: the answer is for {name}={getattr(job.options, name)}"
    if training.greens:
        yield from (f"{setting} was not measured on this device with any versions" for setting in judgement.unseen)
        rest = [
            each for each in coverage.unmeasured_settings(job.options, training.greens) if each not in judgement.unseen
        ]
        if rest:
            yield f"not measured together with the rest: {', '.join(rest)}"
        for flow in judgement.unmeasured:
            yield f"{WORDS[flow]} was not measured for such a job{beside(judgement.beside.get(flow))}"
    elif not (training.reds or training.machine_reds):
        yield from unmeasured_versions(job.options, training, versions, evidence, candidates)


def unstated_versions(installed: Installed, options: Options) -> Iterator[str]:
    """Yield the packages of a job whose versions a user did not give."""
    missing = () if installed.whole else installed.missing
    names = [name for name in nearest_sets.used_packages(options) if name in (*missing, *installed.unpinned)]
    if names:
        yield f"the job needs {' and '.join(names)}, of which {installed.source} gives no exact version"


def beside(on_cpu: JobCoverage | None) -> str:
    """Return what a CPU shows of a part of the job that no GPU measured."""
    if on_cpu is None or not (on_cpu.greens or on_cpu.reds):
        return ""
    cell = on_cpu.reds[0].cell if on_cpu.reds else on_cpu.greens[0]
    return f"; on a CPU it is {'green' if cell.green else 'red'}: {cell.outcome.cell} ({cell.outcome.verdict.value})"


def unmeasured_versions(
    options: Options,
    training: JobCoverage,
    versions: Mapping[str, str],
    evidence: MeasuredCells,
    candidates: Sequence[SetRecord],
) -> Iterator[str]:
    """Yield what is known of other versions, and of similar cases."""
    uses = nearest_sets.used_packages(options)
    around = nearest_sets.enclosing_sets(versions, evidence.columns, uses)
    if around is not None and all(evidence.coverage(options, each.pins).is_green for each in around):
        yield f"these versions were not measured; green on both neighbours, {around[0].key} and {around[1].key}"
        return
    for column in candidates:
        differing = nearest_sets.differing_packages(versions, column, uses)
        if not differing:
            yield f"no case like this job ran on {column.key}, which has these versions"
            continue
        nearby = evidence.coverage(options, column.pins)
        status = "red" if nearby.reds else "green" if nearby.greens else "not measured either"
        differs = ", ".join(f"{name} {column.pins[name]} instead of {versions.get(name, 'none')}" for name in differing)
        yield f"these versions were not measured; on the nearest set, {column.key} ({differs}), the job is {status}"
    for cell in training.nearest[:2]:
        differing_options = ", ".join(
            f"{name}={cell.stated.get(name, '-')}" for name in coverage.differing_options(options.stated, cell.stated)
        )
        word = "green" if cell.green else "red"
        yield f"the nearest measured case is {word}: {cell.outcome.cell}, which has {differing_options}"
