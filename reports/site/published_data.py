"""Loads everything that the site shows: the merged grids of all devices, and every single measurement of a cell.

Answers use the merged grids alone. Some published folders hold only ``outcomes.parquet``, because answers do not use
them: their cells count as further measurements, and fill cells that no other folder has.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from cases import suite
from cases.space.verdict import RED, Phase, Verdict
from matrix.errors import UserError
from matrix.run.outcome import ErrorRecord, Outcome
from reports.answers import knowledge
from reports.answers.diagnosis import diagnose
from reports.results import document as data
from reports.results.grid import NOT_RUN, Grid, Group
from reports.site.columns import MatrixColumn, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.run.outcome import SetRecord
    from reports.answers.diagnosis.diagnose import Cause
    from reports.results.document import MatrixDocument

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
    documents: tuple[MatrixDocument, ...] = ()

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
    def outcomes_by_case(self) -> Mapping[str, list[tuple[str, Outcome]]]:
        """The outcomes of a case with their device, oldest set first."""
        found: dict[str, list[tuple[str, Outcome]]] = {}
        for device, grid in self.grids.items():
            for outcome in grid.outcomes:
                found.setdefault(outcome.case, []).append((device, outcome))
        return found

    @cached_property
    def measurements_by_case(self) -> Mapping[str, list[Measurement]]:
        found: dict[str, list[Measurement]] = {}
        for each in self.measurements:
            found.setdefault(each.case, []).append(each)
        return found

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
    """Load a folder of published results.

    Raises:
        UserError: the folder holds no results, or a file cannot be read.
    """
    paths = data.locate_all(folder)
    if not paths:
        raise UserError(f"{folder}: holds no matrix.json; give a folder of published results")
    documents = tuple(map(read, paths))
    names = [path.parent.relative_to(folder).as_posix() for path in paths]
    grids = {device: knowledge.grid_of(of_device(documents, device)) for device in devices_of(documents)}
    measurements = [each for name, document in zip(names, documents, strict=True) for each in measured(name, document)]
    extra, sources = table_outcomes(folder, {path.parent for path in paths})
    measurements += (measurement(name, outcome) for name, outcome in extra)
    answers = grids
    grids = {device: with_missing(grid, (each for _, each in extra), device) for device, grid in grids.items()}
    return PublishedData(
        folder=folder,
        answers=answers,
        grids=grids,
        columns=columns_of(grids),
        groups=headings(grids),
        measurements=tuple(sorted(measurements, key=lambda each: each.day, reverse=True)),
        sources=(*names, *sources),
        documents=documents,
    )


def read(path: Path) -> MatrixDocument:
    """Read a document as `document.read` does, but without the nested data between its text and its values.

    Raises:
        UserError: the file is no such document, or a newer harness wrote it.
    """
    content = data.content(path)
    try:
        return data.MatrixDocument.model_validate_json(
            gzip.decompress(content) if content[:2] == data.GZIP else content
        )
    except (ValueError, OSError, EOFError, zlib.error):
        return data.read(path)  # which says what is wrong with it


def devices_of(documents: Iterable[MatrixDocument]) -> list[str]:
    known = {each.device for each in documents}
    return [*(each for each in DEVICES if each in known), *sorted(known - {*DEVICES})]


def of_device(documents: Iterable[MatrixDocument], device: str) -> list[MatrixDocument]:
    return [each for each in documents if each.device == device]


def measured(source: str, document: MatrixDocument) -> Iterator[Measurement]:
    yield from (measurement(source, outcome) for outcome in document.cells)


def measurement(source: str, outcome: Outcome) -> Measurement:
    return Measurement(
        source=source,
        device=outcome.hardware.partition(":")[0],
        set=outcome.set,
        case=outcome.case,
        verdict=outcome.verdict,
        hardware=outcome.hardware,
        day=f"{outcome.started:%Y-%m-%d}",
        reason=outcome.reason,
    )


def table_outcomes(folder: Path, with_document: set[Path]) -> tuple[list[tuple[str, Outcome]], list[str]]:
    """Return the outcomes of the folders that hold only a table of them, and the names of these folders."""
    from reports.results import frame  # pandas takes a second to import

    found: list[tuple[str, Outcome]] = []
    sources = []
    for path in sorted(folder.rglob(frame.FILE)):
        if path.parent in with_document:
            continue
        name = path.parent.relative_to(folder).as_posix()
        sources.append(name)
        found += (
            (name, outcome)
            for row in frame.read(path).to_dict("records")
            if (outcome := outcome_of({str(key): value for key, value in row.items()}))
        )
    return found, sources


def outcome_of(row: Mapping[str, Any]) -> Outcome | None:
    """Return the outcome that a row of the table holds; None if it names no verdict of this version."""
    known = {name: value for name, value in row.items() if is_known(value)}
    if known["verdict"] not in [*Verdict]:
        return None
    options = {name: known[name] for name in list(row)[list(row).index("failed_checks") + 1 :] if name in known}
    error = ErrorRecord(type=known["error"], message=known.get("message", "")) if "error" in known else None
    return Outcome(
        set=known["set"],
        case=known["case"],
        group=known["group"],
        why="",
        options=options,
        verdict=Verdict(known["verdict"]),
        reason=known.get("reason", ""),
        phase=Phase(known["phase"]) if known.get("phase") in [*Phase] else None,
        error=error,
        lock=known.get("lock", ""),
        code=known.get("code", ""),
        hardware=known.get("hardware", ""),
        started=known["started"],
        seconds=known["seconds"],
    )


def is_known(value: object) -> bool:
    import pandas as pd

    return not (value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)))


def with_missing(grid: Grid, extra: Iterable[Outcome], device: str) -> Grid:
    """Add the cells of a device that a grid lacks, on sets that it has; the latest measurement counts."""
    keys = {column.key for column in grid.sets}
    added: dict[tuple[str, str], Outcome] = {}
    for outcome in sorted(extra, key=lambda each: each.started):
        cell = outcome.case, outcome.set
        if outcome.hardware.startswith(f"{device}:") and outcome.set in keys and cell not in grid.cells:
            added[cell] = outcome
    if not added:
        return grid
    return replace(
        grid,
        cells={**grid.cells, **added},
        verdicts={**grid.verdicts, **{cell: each.verdict for cell, each in added.items()}},
        options={**grid.options, **{cell: each.options for cell, each in added.items()}},
        repeats={**grid.repeats, **{cell: (each.verdict,) for cell, each in added.items()}},
        groups=(*grid.groups, *regrouped(added.values(), set(grid.cases))),
    )


def regrouped(outcomes: Iterable[Outcome], known: set[str]) -> Iterator[Group]:
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


def is_red(verdict: Verdict | None) -> bool:
    return verdict in RED


def by_set(outcomes: Sequence[tuple[str, Outcome]]) -> Mapping[tuple[str, str], Outcome]:
    return {(device, outcome.set): outcome for device, outcome in outcomes}
