"""The dated sets that ran on GPUs from their own lock, and what each of their results rests on.

A GPU host often has a torch of its own, which replaces that of a set. The columns here have exactly the packages that
the same set has on a CPU.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from cases.grid.profiles import PROFILES
from cases.space.verdict import RED
from matrix.errors import UserError
from matrix.keys import SetKey
from matrix.run import code_digest
from matrix.versions import locks, sets
from reports.answers import knowledge
from reports.answers.diagnosis import diagnose
from reports.answers.fixes import remedies
from reports.results.grid import Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from cases.space.verdict import Verdict
    from matrix.run.outcome import Outcome, SetRecord
    from matrix.versions.sets import VersionSet
    from reports.answers.fixes.remedies import Remedy
    from reports.results.grid import Grid
    from reports.results.stored_results import StoredResults

CUDA: Final = "cuda"
NOT_RECORDED: Final = "not recorded"
DEFAULT: Final = frozenset(case.id for case in PROFILES["default"].cases)


@dataclass(frozen=True, kw_only=True)
class OwnLock:
    """A dated set that ran on GPUs from its own lock.

    ``code`` is the digest of all case code that took part. ``answered`` counts the red cells with a fix that runs
    verified, or for which a search found none within its budget.
    """

    record: SetRecord
    hardware: tuple[str, ...]
    drivers: tuple[str, ...]
    cuda: tuple[str, ...]
    nccl: tuple[str, ...]
    days: tuple[str, ...]  # the first and the last
    code: str
    counts: Mapping[Verdict, int]
    explained: int
    answered: int

    @property
    def cells(self) -> int:
        return sum(self.counts.values())

    @property
    def red(self) -> int:
        return sum(self.counts[verdict] for verdict in RED)


def default_grid(folder: Path) -> Grid:
    """The cases of the default profile on the dated sets that ran on GPUs from their own lock.

    Raises:
        UserError: there is no result on GPUs, or a file cannot be read.
    """
    return restricted(whole_grid(folder))


def whole_grid(folder: Path) -> Grid:
    """Every case on every set that ran on GPUs, whatever its lock.

    Raises:
        UserError: there is no result on GPUs, or a file cannot be read.
    """
    runs = [run for run in knowledge.stored(folder) if run.device == CUDA]  # the index has no facts of green cells
    if not runs:
        raise UserError(f"{folder}: holds no results measured on GPUs")
    return knowledge.grid_of(runs)


def restricted(grid: Grid) -> Grid:
    packaged = {each.key: each for each in sets.load()}
    own = {column.key for column in grid.sets if has_own_lock(column, packaged)}
    groups = (replace(each, cases=tuple(case for case in each.cases if case in DEFAULT)) for each in grid.groups)

    def is_kept(cell: tuple[str, str]) -> bool:
        return cell[0] in DEFAULT and cell[1] in own

    return replace(
        grid,
        sets=tuple(column for column in grid.sets if column.key in own),
        groups=tuple(Group(name=each.name, cases=each.cases) for each in groups if each.cases),
        cells={cell: outcome for cell, outcome in grid.cells.items() if is_kept(cell)},
        verdicts={cell: verdict for cell, verdict in grid.verdicts.items() if is_kept(cell)},
        options={cell: options for cell, options in grid.options.items() if is_kept(cell)},
        planned=frozenset(filter(is_kept, grid.planned)),
        repeats={cell: verdicts for cell, verdicts in grid.repeats.items() if is_kept(cell)},
    )


def has_own_lock(column: SetRecord, packaged: Mapping[str, VersionSet]) -> bool:
    """Tell whether a column is a dated set as it is packaged."""
    known = packaged.get(column.key) if SetKey.parse(column.key).is_slice else None
    lock = locks.read(known) if known is not None else None
    return lock is not None and lock.digest == column.lock


def columns(grid: Grid, folder: Path) -> tuple[OwnLock, ...]:
    """What the results of each set of ``default_grid`` rest on, oldest set first.

    Raises:
        UserError: a file cannot be read.
    """
    known = remedies.load(folder, device=CUDA)
    drivers = drivers_by_set(knowledge.stored(folder))
    explained = Counter(cell.set for cause in diagnose.causes(grid) if cause.signature for cell in cause.cells)
    found: dict[str, list[Outcome]] = {column.key: [] for column in grid.sets}
    for outcome in grid.each_outcome():
        found[outcome.set].append(outcome)
    return tuple(
        column(record, found[record.key], drivers.get(record.key, ()), explained[record.key], known)
        for record in grid.sets
    )


def column(
    record: SetRecord, outcomes: list[Outcome], drivers: Iterable[str], explained: int, known: Mapping[str, Remedy]
) -> OwnLock:
    days = sorted(f"{each.started:%Y-%m-%d}" for each in outcomes)
    return OwnLock(
        record=record,
        hardware=tuple(sorted({each.hardware.partition(": ")[2] for each in outcomes})),
        drivers=tuple(sorted(drivers)),
        cuda=tuple(sorted(fact(outcomes, "torch_cuda"))),
        nccl=tuple(sorted(fact(outcomes, "nccl"))),
        days=(days[0], days[-1]) if days else (),
        code=code_digest.digest(code_digest.merged(each.modules for each in outcomes)),
        counts=Counter(each.verdict for each in outcomes),
        explained=explained,
        answered=sum(1 for each in outcomes if each.verdict in RED and each.cell in known),
    )


def fact(outcomes: Iterable[Outcome], name: str) -> set[str]:
    return {str(each.facts[name]) for each in outcomes if each.facts.get(name)}


def drivers_by_set(runs: Iterable[StoredResults]) -> dict[str, set[str]]:
    """The drivers of the GPU runs of each set, ``NOT_RECORDED`` of a run from before drivers were recorded."""
    found: dict[str, set[str]] = {}
    for run in runs:
        driver = str(run.record.facts.get("driver") or NOT_RECORDED)
        for column in run.sets if run.device == CUDA else ():
            found.setdefault(column.key, set()).add(driver)
    return found
