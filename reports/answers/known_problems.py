"""Finds the known problems, upstream's and our findings, that published runs reproduced on given version sets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from cases.space.verdict import RED, Verdict
from matrix.known import findings
from reports.answers import knowledge
from reports.answers.diagnosis import diagnose
from reports.answers.knowledge import PUBLISHED
from reports.results import known_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.known.known_problems import Cells, Problem
    from matrix.run.outcome import Outcome, SetRecord
    from reports.results.grid import Grid


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproducedProblem:
    """A problem that cells on some sets reproduce, with the green cells that the table names."""

    problem: Problem
    shown: tuple[Outcome, ...]
    green_cells: tuple[Outcome, ...]

    @property
    def red(self) -> Mapping[str, tuple[str, ...]]:
        return by_case(self.shown)

    @property
    def green(self) -> Mapping[str, tuple[str, ...]]:
        return by_case(self.green_cells)


def reproduced_problems(
    sets: Mapping[str, Mapping[str, str]], *, device: str, folder: Path = PUBLISHED
) -> tuple[ReproducedProblem, ...]:
    """Return the problems reproduced on these sets, silent ones first.

    ``sets`` maps keys to pins. Sets that were published with other pins are left out.

    Raises:
        UserError: a published document or a table cannot be read.
    """
    rows = findings.with_known_problems()
    cases = {cells.case for row in rows for cells in (*row.red, *row.green)}
    matrix = knowledge.by_device(folder, only=cases).get(device)
    if matrix is None:
        return ()
    same = [column for column in matrix.sets if column.pins == sets.get(column.key)]
    every = (match_problem(row, matrix, same, device) for row in rows)
    return tuple(sorted((each for each in every if each.shown), key=lambda each: not each.problem.silent))


def match_problem(problem: Problem, matrix: Grid, sets: Sequence[SetRecord], device: str) -> ReproducedProblem:
    """Match one problem with the cells of these sets, measured on a device."""
    red = (each for cells in problem.red for each in reproduced(problem, cells, matrix, sets, device))
    shown = {each.cell: each for each in red}
    reproduced_on = {each.set for each in shown.values()}
    green = (
        each
        for cells in problem.green
        for each in green_on_sets(cells, matrix, sets, {*cells.sets_on(device), *reproduced_on})
    )
    return ReproducedProblem(
        problem=problem, shown=tuple(shown.values()), green_cells=tuple({each.cell: each for each in green}.values())
    )


def reproduced(
    problem: Problem, cells: Cells, matrix: Grid, sets: Iterable[SetRecord], device: str
) -> Iterator[Outcome]:
    """Yield red cells that show the problem; on sets that the row does not name, the diagnosis must agree.

    Cells that name no set for the device were never reproduced on it.
    """
    for column in sets:
        outcome = matrix.lookup(cells.case, column.key)
        if outcome is None or not known_results.is_shown(outcome, cells.shows):
            continue
        named = cells.sets_on(device)
        if column.key in named or (named and is_explained_by(problem, outcome, column)):
            yield outcome


def is_explained_by(problem: Problem, outcome: Outcome, column: SetRecord) -> bool:
    """Tell if no other signature explains the red cell."""
    if outcome.verdict not in RED:
        return False
    causes = diagnose.diagnose(diagnose.symptom(outcome, column.pins))
    return not causes or problem.id in causes[0].signature.problems


def green_on_sets(cells: Cells, matrix: Grid, sets: Iterable[SetRecord], wanted: set[str]) -> Iterator[Outcome]:
    """Yield the green cells on the wanted sets: those that the row names, or that reproduced the problem."""
    for column in sets:
        outcome = matrix.lookup(cells.case, column.key)
        if outcome is not None and outcome.verdict is Verdict.PASS and column.key in wanted:
            yield outcome


def by_case(cells: Iterable[Outcome]) -> Mapping[str, tuple[str, ...]]:
    """Return the sets of each case."""
    sets_by_case: dict[str, list[str]] = {}
    for each in cells:
        sets_by_case.setdefault(each.case, []).append(each.set)
    return {case: tuple(sorted(sets)) for case, sets in sets_by_case.items()}


def ran(problems: Iterable[ReproducedProblem]) -> str:
    """Return the hardware and the first and last day of the cells."""
    outcomes = list(chain.from_iterable((*each.shown, *each.green_cells) for each in problems))
    days = sorted(f"{each.started:%Y-%m-%d}" for each in outcomes)
    hardware = "; ".join(sorted({each.hardware for each in outcomes}))
    return f"{hardware}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
