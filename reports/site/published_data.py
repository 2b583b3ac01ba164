"""Loads everything that the site shows: the merged grids of all devices, and every single measurement of a cell.

Answers use the merged grids alone. Some published folders hold only a table of an older version, which answers do not
use: their cells count as further measurements, and fill cells that no other folder has.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cases import suite
from cases.space.verdict import RED
from matrix.errors import UserError
from matrix.run import store
from reports.answers import knowledge
from reports.answers.diagnosis import diagnose
from reports.results import document as data
from reports.results import stored_results
from reports.results.grid import NOT_RUN, Grid, Group
from reports.results.log_ends import published_ends
from reports.results.outcome_rows import LazyOutcomes, OutcomeRow, last_attempts, whole
from reports.results.wording import headline
from reports.site import data_sources
from reports.site.columns import MatrixColumn, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from cases.space.verdict import Verdict
    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.diagnosis.diagnose import Cause
    from reports.results.outcome_rows import AnyOutcome
    from reports.results.stored_results import StoredResults
    from reports.site.data_sources import SourceFile

DEVICES: Final = ("cpu", "cuda")
UNPLACED: Final = "Outside the grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of one cell, as one published folder has it. ``source`` is the folder's name."""

    source: str
    device: str
    set: str
    case: str
    verdict: Verdict
    hardware: str
    day: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class PublishedData:
    """The results of a folder of published results.

    ``answers`` are the grids by device that all answers use; ``grids`` have the cells of further folders, too.
    ``groups`` are the headings of the matrix with their cases, over all devices.
    """

    folder: Path
    answers: Mapping[str, Grid]
    grids: Mapping[str, Grid]
    columns: tuple[MatrixColumn, ...]
    groups: tuple[Group, ...]
    measurements: tuple[Measurement, ...]
    sources: tuple[str, ...]
    runs: tuple[StoredResults, ...] = ()
    problems: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all files, as ``sha256sum`` gives it for their list."""
        return data_sources.sha256(data_sources.sums(self.files).encode())

    @cached_property
    def first_day(self) -> str:
        return min((each.day for each in self.measurements), default="")

    @cached_property
    def last_day(self) -> str:
        return max((each.day for each in self.measurements), default="")

    @cached_property
    def cases(self) -> tuple[str, ...]:
        return tuple(case for group in self.groups for case in group.cases)

    @cached_property
    def causes(self) -> Mapping[str, tuple[Cause, ...]]:
        """The causes of the red cells, by device."""
        return {device: diagnose.causes(grid) for device, grid in self.grids.items()}

    @cached_property
    def cause_of(self) -> Mapping[tuple[str, str, str], str]:
        """The id of the signature that explains a red cell, by device, case and set; empty if none does."""
        return {
            (device, outcome.case, outcome.set): cause.signature.id if cause.signature else ""
            for device, causes in self.causes.items()
            for cause in causes
            for outcome in cause.cells
        }

    @cached_property
    def rows_by_case(self) -> Mapping[str, list[tuple[str, AnyOutcome]]]:
        """The outcomes of a case with their device, oldest set first, unread as far as they are in their file."""
        found: dict[str, list[tuple[str, AnyOutcome]]] = {}
        for device, grid in self.grids.items():
            for cell in grid.measured():
                found.setdefault(cell[0], []).append((device, grid.rows[cell]))
        return found

    def outcomes_of(self, case: str) -> list[tuple[str, Outcome]]:
        """Read the outcomes of a case with their device, oldest set first."""
        return [(device, whole(each)) for device, each in self.rows_by_case.get(case, ())]

    @cached_property
    def measurements_by_case(self) -> Mapping[str, list[Measurement]]:
        found: dict[str, list[Measurement]] = {}
        for each in self.measurements:
            found.setdefault(each.case, []).append(each)
        return found

    @cached_property
    def logged_rows(self) -> Mapping[tuple[str, str], list[tuple[OutcomeRow, Path]]]:
        """The red outcomes whose folder keeps the ends of their logs, with it, by device and cell, newest first."""
        found: dict[tuple[str, str], list[tuple[OutcomeRow, Path]]] = {}
        for run in self.runs:
            for row in run.counted:
                folder = row.source.folder if isinstance(row, OutcomeRow) and row.verdict in RED else None
                if isinstance(row, OutcomeRow) and folder is not None and row.cell in published_ends(folder):
                    found.setdefault((run.device, row.cell), []).append((row, folder))
        return {key: sorted(rows, key=lambda each: each[0].started, reverse=True) for key, rows in found.items()}

    def logs_of_same_failure(self, device: str, outcome: Outcome) -> dict[str, str]:
        """Return the ends of the logs of the newest other run in which a cell failed alike, by their kind and its day.

        Raises:
            UserError: the published logs are damaged, or a newer version wrote them.
        """
        for other, folder in self.logged_rows.get((device, outcome.cell), ()):
            if headline(whole(other)) == headline(outcome):
                ends = published_ends(folder)[other.cell]
                return {f"{kind}, of a run of {other.started:%Y-%m-%d} that failed alike": ends[kind] for kind in ends}
        return {}

    def counts(self, device: str) -> Counter[Verdict]:
        return Counter(self.grids[device].verdicts.values())

    @property
    def red(self) -> int:
        return sum(len(grid.red) for grid in self.grids.values())

    @property
    def unknown(self) -> int:
        """The number of squares (case, column and device) without a measurement."""
        squares = len(self.cases) * sum(len(column.sets) for column in self.columns)
        return squares - sum(len(grid.verdicts) for grid in self.grids.values())

    def set_record(self, device: str, key: str) -> SetRecord | None:
        return self.records.get((device, key))

    @cached_property
    def records(self) -> Mapping[tuple[str, str], SetRecord]:
        return {(device, column.key): column for device, grid in self.grids.items() for column in grid.sets}


def load(folder: Path = knowledge.PUBLISHED) -> PublishedData:
    """Load a folder of published results, a run directory, or a folder with several of both.

    Raises:
        UserError: the folder holds no results, or a file cannot be read.
    """
    runs: dict[str, StoredResults] = {}
    tables: dict[str, tuple[AnyOutcome, ...]] = {}
    paths = paths_in(folder)
    for path in paths:
        name = path.parent.relative_to(folder).as_posix()
        found = read_named(path)
        if found is not None:
            runs[name] = found
        else:
            tables[name] = table_outcomes(path)
    if not runs:
        raise UserError(f"{folder}: {stored_results.NONE}")
    answers = {device: knowledge.grid_of(of_device(runs.values(), device)) for device in devices_of(runs.values())}
    extra = [each for outcomes in tables.values() for each in outcomes]
    grids = {device: with_missing(grid, extra, device) for device, grid in answers.items()}
    outcomes = [(name, each) for name, run in runs.items() for each in run.counted]
    outcomes += [(name, each) for name, of_table in tables.items() for each in of_table]
    measurements = (measurement(name, each) for name, each in outcomes)
    return PublishedData(
        folder=folder,
        answers=answers,
        grids=grids,
        columns=columns_of(grids),
        groups=headings(grids),
        measurements=tuple(sorted(measurements, key=lambda each: each.day, reverse=True)),
        sources=(*runs, *tables),
        problems=tuple(problem_of(name, each) for name, run in runs.items() for each in run.problems),
        runs=tuple(runs.values()),
        files=data_sources.source_files(folder, paths),
    )


def read_named(path: Path) -> StoredResults | None:
    """Read a file of published results or a run; None for a table of an older version.

    Raises:
        UserError: it cannot be read; the message names the file or the run.
    """
    if path.name != store.RUN:
        return stored_results.read(path)
    try:
        return stored_results.read_run(path.parent)
    except UserError as error:
        raise UserError(f"{path.parent}: {error}") from None


def problem_of(name: str, words: str) -> str:
    """Return a problem with the name of its run, unless the folder is the only run."""
    return words if name == "." else f"{name}: {words}"


def paths_in(folder: Path) -> list[Path]:
    """Return the files of results in a folder and below it; of a run directory, the run itself and not its reports."""
    runs = {path.parent: path for path in folder.rglob(store.RUN)}
    others = (path for path in stored_results.locate_all(folder) if path.parent not in runs)
    return sorted([*runs.values(), *others])


def table_outcomes(path: Path) -> tuple[AnyOutcome, ...]:
    """Return the outcomes of a table of an older version, which has no run.

    Raises:
        UserError: the file is damaged.
    """
    from reports.results.outcome_table import OutcomeTable  # importing pyarrow takes a moment

    return last_attempts(OutcomeTable(data.content(path), path).plain_outcomes())


def devices_of(runs: Iterable[StoredResults]) -> list[str]:
    known = {each.device for each in runs}
    return [*(each for each in DEVICES if each in known), *sorted(known - {*DEVICES})]


def of_device(runs: Iterable[StoredResults], device: str) -> list[StoredResults]:
    return [each for each in runs if each.device == device]


def measurement(source: str, outcome: AnyOutcome) -> Measurement:
    return Measurement(
        source=source,
        device=sys.intern(outcome.hardware.partition(":")[0]),
        set=outcome.set,
        case=outcome.case,
        verdict=outcome.verdict,
        hardware=outcome.hardware,
        day=sys.intern(f"{outcome.started:%Y-%m-%d}"),
        reason=outcome.reason,
    )


def with_missing(grid: Grid, extra: Iterable[AnyOutcome], device: str) -> Grid:
    """Add the cells of a device that a grid lacks, on sets that it has; the latest measurement counts."""
    keys = {column.key for column in grid.sets}
    added: dict[tuple[str, str], AnyOutcome] = {}
    for outcome in sorted(extra, key=lambda each: each.started):
        cell = outcome.case, outcome.set
        if outcome.hardware.startswith(f"{device}:") and outcome.set in keys and cell not in grid.cells:
            added[cell] = outcome
    if not added:
        return grid
    return replace(
        grid,
        cells=LazyOutcomes({**grid.rows, **added}),
        verdicts={**grid.verdicts, **{cell: each.verdict for cell, each in added.items()}},
        options={**grid.options, **{cell: each.options for cell, each in added.items()}},
        repeats={**grid.repeats, **{cell: (each.verdict,) for cell, each in added.items()}},
        groups=(*grid.groups, *regrouped(added.values(), set(grid.cases))),
    )


def regrouped(outcomes: Iterable[AnyOutcome], known: set[str]) -> Iterator[Group]:
    cases: dict[str, dict[str, None]] = {}
    for each in outcomes:
        if each.case not in known:
            cases.setdefault(each.group, {})[each.case] = None
    yield from (Group(name=name, cases=tuple(each)) for name, each in cases.items())


def headings(grids: Mapping[str, Grid]) -> tuple[Group, ...]:
    """Return all cases under the headings that they have today, in the order of the declared grid.

    Results of older versions may have a case under a former heading, so a declared case takes its present one.
    """
    declared = {case.id: case.group for case in suite.CASES.values()}
    order = {name: place for place, name in enumerate(dict.fromkeys(declared.values()))}
    places = {case: place for place, case in enumerate(declared)}
    cases: dict[str, str] = {}
    for grid in grids.values():
        for group in grid.groups:
            for case in group.cases:
                cases.setdefault(case, declared.get(case, group.name))
    by_group: dict[str, list[str]] = {}
    for case, name in cases.items():
        by_group.setdefault(name, []).append(case)
    last = {UNPLACED: 1, NOT_RUN: 2}
    names = sorted(by_group, key=lambda name: (last.get(name, 0), order.get(name, len(order))))
    return tuple(
        Group(name=name, cases=tuple(sorted(by_group[name], key=lambda case: places.get(case, len(places)))))
        for name in names
    )
