"""The results of runs as their files keep them, without reading every outcome.

A folder of published results holds ``outcomes.parquet``; older ones, and folders of rendered reports, hold
``matrix.json`` or ``matrix.json.gz``, which count if both are there. A run directory holds ``run.json`` and
``outcomes.jsonl``. Tables of older versions lack the run and the whole outcomes: they are no results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matrix.run import store
from reports.results import document as data
from reports.results import outcome_lines
from reports.results.grid import grid
from reports.results.outcome_rows import last_attempts

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from matrix.run.outcome import RunRecord, SetRecord
    from reports.results.document import MatrixDocument
    from reports.results.grid import Grid
    from reports.results.outcome_rows import AnyOutcome

FILE: Final = "outcomes.parquet"
NONE: Final = "holds no results; give a run directory, or a folder of published results"


@dataclass(frozen=True, kw_only=True)
class StoredResults:
    """The results of a run. ``outcomes`` are in stored order, with every attempt and repeat that was stored.

    ``flaky`` is what a document says of repeats that it does not hold.
    """

    record: RunRecord
    sets: tuple[SetRecord, ...]
    outcomes: tuple[AnyOutcome, ...]
    header: MatrixDocument | None = None
    problems: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        return self.record.device

    @property
    def counted(self) -> tuple[AnyOutcome, ...]:
        """The outcomes without attempts that a later one supersedes, which published results do not hold."""
        return last_attempts(self.outcomes) if self.header is None else self.outcomes

    def grid(self) -> Grid:
        """Return the grid of the results.

        Raises:
            UserError: an outcome belongs to none of the sets.
        """
        matrix = grid(self.record, self.sets, self.outcomes)
        return matrix if self.header is None else data.with_flaky(matrix, self.header)


def locate(folder: Path) -> Path | None:
    """Return the file of results in a folder; None if it has none.

    Raises:
        UserError: the folder has a document in both spellings.
    """
    path = folder / FILE
    return data.locate(folder) or (path if path.exists() else None)


def locate_all(folder: Path) -> list[Path]:
    """Return every file of results in a folder and below it, sorted by folder.

    Raises:
        UserError: a folder has a document in both spellings.
    """
    folders = {path.parent for name in (data.PLAIN, data.COMPRESSED, FILE) for path in folder.rglob(name)}
    return [path for each in sorted(folders) if (path := locate(each))]


def read(path: Path) -> StoredResults | None:
    """Read a file of results; None if it is a table without them.

    Raises:
        UserError: the file cannot be read, is damaged, or a newer harness wrote it.
    """
    return parsed(data.content(path), path)


def parsed(content: bytes, path: Path) -> StoredResults | None:
    """Return the results in the content of a file, as `read` does."""
    if path.name != FILE:
        return of_document(data.validated(data.parsed(content, path), path))
    from reports.results.outcome_table import OutcomeTable  # importing pyarrow takes a moment

    table = OutcomeTable(content, path)
    if not table.is_run:
        return None
    return StoredResults(record=table.header.run, sets=table.header.sets, outcomes=table.rows, header=table.header)


def outcomes_of(path: Path, cases: Collection[str]) -> tuple[AnyOutcome, ...]:
    """Read the outcomes of some cases of a file, which is quicker; a table without whole outcomes has none.

    Raises:
        UserError: the file cannot be read, or is damaged.
    """
    if path.name != FILE:
        run = read(path)
        return tuple(each for each in run.outcomes if each.case in cases) if run is not None else ()
    from reports.results.outcome_table import OutcomeTable  # importing pyarrow takes a moment

    table = OutcomeTable(data.content(path), path)
    return table.rows_of(cases) if table.is_run else ()


def of_document(document: MatrixDocument) -> StoredResults:
    return StoredResults(record=document.run, sets=document.sets, outcomes=document.cells, header=document)


def read_run(directory: Path) -> StoredResults:
    """Return the readable part of a run, finished or not; its outcomes stay in their file.

    Raises:
        UserError: there is no run, a file of it is damaged beyond single lines, or a newer harness wrote it.
    """
    record, sets = store.read_head(directory)
    rows, problems = outcome_lines.rows(directory / store.OUTCOMES)
    return StoredResults(record=record, sets=sets, outcomes=rows, problems=problems)
