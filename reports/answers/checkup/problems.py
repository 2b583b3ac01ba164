"""The problems of an environment or job: what a check found, why, and which cells show it.

A problem is *inferred* if it was measured on the sets around the environment's versions, or on every set that ran such
a case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED
from reports.answers.diagnosis.diagnose import diagnose, symptom
from reports.answers.judgement import nearest_sets
from reports.answers.judgement.flows import TRAIN, WORDS
from reports.answers.judgement.known_errors import Affected
from reports.results.known_results import address
from reports.results.wording import headline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.space.options import Options
    from matrix.run.outcome import SetRecord
    from reports.answers.checkup.installed import Installed
    from reports.answers.diagnosis.signatures import Signature
    from reports.answers.judgement.coverage import MeasuredCells, Red
    from reports.answers.judgement.judge import Judgement
    from reports.answers.judgement.known_errors import KnownError
    from reports.results.grid import Grid

UNEXPLAINED: Final = "unexplained: no signature fits"
ENOUGH: Final = 3  # sets that must agree before a failure counts as one of all sets


@dataclass(frozen=True, kw_only=True)
class CheckupProblem:
    """A problem of an environment or job; ``inferred`` names the sets it is inferred from if it was not measured."""

    what: str
    why: str = ""
    links: tuple[str, ...] = ()
    shown_by: str = ""
    inferred: str = ""
    of_job: bool = False  # a change of the job's settings can solve it
    flow: str = ""  # the part of the job, if it is not training
    finding: str = ""  # the id of the known error
    hardware: str = ""  # of the cell that shows it


def job_problems(judgement: Judgement) -> Iterator[CheckupProblem]:
    """Yield what is red of the job as it is stated."""
    yield from (cell_problem(each) for each in judgement.reds)
    yield from (error_problem(each) for each in judgement.errors)


def possible_problems(judgement: Judgement) -> Iterator[CheckupProblem]:
    """Yield what is red of the job if its user means or does something that no file states."""
    yield from (cell_problem(each) for each in judgement.possible_reds)
    yield from (error_problem(each) for each in judgement.possible_errors)


def error_problem(error: KnownError) -> CheckupProblem:
    """Return a known error as a problem."""
    row, version = error.finding, error.finding.package
    inference = {
        Affected.BETWEEN: f"the releases of {version} before and after, which have it",
        Affected.OPEN: f"the nearest release of {version} that has it",
    }.get(error.affected, "")
    return CheckupProblem(
        what=row.title,
        why=row.meet,
        links=error.links,
        shown_by=next((f"{each.cell} ({each.verdict.value})" for each in error.cells), ""),
        inferred=inference,
        of_job=True,
        finding=row.id,
        hardware=next((each.hardware for each in error.cells), ""),
    )


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
                    hardware=outcome.hardware,
                )


def missing_packages(installed: Installed, options: Options) -> Iterator[CheckupProblem]:
    missing = [name for name in nearest_sets.used_packages(options) if name in installed.missing]
    if missing and installed.whole:
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
        hardware=outcome.hardware,
        flow="" if red.cell.stated["flow"] == TRAIN else WORDS[str(red.cell.stated["flow"])],
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
