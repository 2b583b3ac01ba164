"""The families of failures on GPUs: for each case, the sets on which it is red as described, or green as advised.

The rows are those of the known problems. Their expectations name sets that ran on a CPU; here, every set that ran on
GPUs counts, whatever its torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cases.space.verdict import RED, Verdict
from matrix.known import known_problems
from reports.results.known_results import is_shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matrix.known.known_problems import Cells, Problem
    from matrix.run.outcome import SetRecord
    from reports.results.grid import Grid

RAN: Final = RED | {Verdict.PASS}


@dataclass(frozen=True, kw_only=True)
class CaseOnGpus:
    """A case of a family on the sets that ran it on GPUs, oldest first.

    ``as_said`` lists the sets on which a red case fails with the family's error, or a green one passes; ``measured``
    all sets on which it ran. ``because`` is why a case is green.
    """

    case: str
    because: str
    measured: tuple[str, ...]
    as_said: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FamilyOnGpus:
    """A family of failures with its red cases, and the cases that are green with a fix.

    ``both`` lists the sets on which a case is red and one that it is compared with is green, oldest first.
    """

    title: str
    red: tuple[CaseOnGpus, ...]
    green: tuple[CaseOnGpus, ...]
    both: tuple[str, ...]


def on_gpus(grid: Grid, problems: Iterable[Problem] | None = None) -> tuple[FamilyOnGpus, ...]:
    """The families among some known problems (default: the packaged ones) on a grid of GPU results.

    Raises:
        UserError: the table of known problems cannot be read.
    """
    rows = known_problems.load() if problems is None else problems
    return tuple(on_grid(each, grid) for each in rows if each.family)


def on_grid(problem: Problem, grid: Grid) -> FamilyOnGpus:
    red, green = tuple(red_cases(problem.red, grid)), tuple(green_cases(problem.green, grid))
    failing = {(each.case, key) for each in red for key in each.as_said}
    both = {
        key
        for cells, each in zip(problem.green, green, strict=True)
        for key in each.as_said
        if any((compared.case, key) in failing for compared in problem.red_beside(cells))
    }
    ordered = tuple(each.key for each in grid.sets if each.key in both)
    return FamilyOnGpus(title=problem.title, red=red, green=green, both=ordered)


def red_cases(red: Iterable[Cells], grid: Grid) -> Iterator[CaseOnGpus]:
    """Yield each case once: it may have an error of its own on some sets."""
    errors: dict[str, list[str]] = {}
    for cells in red:
        errors.setdefault(cells.case, []).append(cells.shows)
    for case, patterns in errors.items():
        measured = ran(case, grid)
        said = (key for key in measured if any(is_shown(grid.cells[case, key], pattern) for pattern in patterns))
        yield CaseOnGpus(case=case, because="", measured=measured, as_said=tuple(said))


def green_cases(green: Iterable[Cells], grid: Grid) -> Iterator[CaseOnGpus]:
    for cells in green:
        measured = ran(cells.case, grid)
        said = tuple(key for key in measured if grid.verdicts[cells.case, key] is Verdict.PASS)
        yield CaseOnGpus(case=cells.case, because=cells.because, measured=measured, as_said=said)


def ran(case: str, grid: Grid) -> tuple[str, ...]:
    return tuple(each.key for each in grid.sets if grid.verdicts.get((case, each.key)) in RAN)


def stacks(families: Iterable[FamilyOnGpus], grid: Grid) -> tuple[SetRecord, ...]:
    """The sets that the families name, oldest first."""
    named = {key for family in families for each in (*family.red, *family.green) for key in each.as_said}
    return tuple(each for each in grid.sets if each.key in named)
