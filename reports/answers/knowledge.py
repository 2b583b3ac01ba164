"""Loads all published results as one grid per device, for the commands that answer questions.

Reads every ``matrix.json`` and ``matrix.json.gz`` in a folder and below it, or the folder's index of them. A grid never
mixes devices.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cases.space.renamed import current_case_id
from matrix.errors import UserError
from matrix.keys import EnvironmentKey
from matrix.run import store
from reports.answers import answer_index
from reports.answers.diagnosis.diagnose import is_ours
from reports.results import document as data
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import Outcome, SetRecord
    from reports.answers.answer_index import AnswerIndex
    from reports.results.document import MatrixDocument
    from reports.results.grid import Grid

PUBLISHED: Final = Path(__file__).parents[1] / "published"
# A process that asks again for the same results gets those that it has; what it keeps is limited.
GRIDS: Final = 4
DOCUMENTS: Final = 64


class File(NamedTuple):
    """A document as it is stored. The content is the identity: a file that changes is read again."""

    path: Path
    content: bytes


class PublishedFiles(NamedTuple):
    """The documents of a folder and below it, and the index of the folder."""

    folder: Path
    documents: tuple[File, ...]
    index_file: File | None

    @property
    def digests(self) -> dict[str, str]:
        return answer_index.digests((path.relative_to(self.folder).as_posix(), each) for path, each in self.documents)


def load(folder: Path = PUBLISHED, *, device: str = "cpu") -> Grid:
    """Return the grid of one kind of device (``cpu`` or ``cuda``).

    Where documents have the same cell, the newest lock, case code and hardware count, with all their repeats.

    Raises:
        UserError: there is no result of that device, or a document cannot be read.
    """
    files = files_in(folder)
    if device not in devices(files):
        raise UserError(f"{folder}: holds no matrix.json measured on {device}; give a folder of published results")
    return device_grid(files, device)


def by_device(folder: Path = PUBLISHED, *, only: Collection[str] | None = None) -> dict[str, Grid]:
    """Return the grid of each device; ``only`` restricts it to some cases, which is quicker.

    Raises:
        UserError: there is no result at all, or a document cannot be read.
    """
    files, cases = files_in(folder), None if only is None else frozenset(only)
    if not files.documents:
        raise UserError(f"{folder}: holds no matrix.json; give a folder of published results")
    return {device: device_grid(files, device, cases) for device in devices(files, cases)}


def other_devices(than: str, directories: Iterable[Path]) -> dict[str, Grid]:
    """Return the grids of some runs by device, which must differ from ``than``.

    Raises:
        UserError: there is no such run, it cannot be read, or it is of the same kind.
    """
    documents_by_device: dict[str, list[MatrixDocument]] = {}
    for directory in directories:
        record, sets, outcomes = store.read(directory)
        if record.device == than:
            raise UserError(f"{directory} is a run on {than} as well: a run is compared with those of another device")
        run = data.document(record, grid(record, sets, outcomes), generated=record.started)
        documents_by_device.setdefault(record.device, []).append(run)
    return {device: grid_of(each) for device, each in documents_by_device.items()}


def grid_of(documents: Sequence[MatrixDocument]) -> Grid:
    """Return the grid of one device's documents, without cells that only a since-repaired harness bug made red."""
    newest = max(documents, key=lambda each: each.run.started)
    nothing_planned = newest.run.model_copy(update={"planned": ()})
    sets = columns(documents)
    pins = {column.key: column.pins for column in sets}
    measured = latest(documents, {column.key: column.lock for column in sets})
    return grid(nothing_planned, sets, (each for each in measured if not is_ours(each, pins.get(each.set, {}))))


def documents(folder: Path) -> Iterator[MatrixDocument]:
    return (document(each) for each in files_in(folder).documents)


def files_in(folder: Path) -> PublishedFiles:
    path = folder / answer_index.FILE
    return PublishedFiles(
        folder=folder,
        documents=tuple(File(each, data.content(each)) for each in data.locate_all(folder)),
        index_file=File(path, data.content(path)) if path.exists() else None,
    )


def index_content(folder: Path) -> bytes:
    """Return the content of a new index of a folder's documents.

    Raises:
        UserError: the folder has no document, or one cannot be read.
    """
    files = files_in(folder)._replace(index_file=None)
    if not files.documents:
        raise UserError(f"{folder}: holds no matrix.json; give a folder of published results")
    grids = {device: grid_of(of_device(files, device)) for device in devices(files)}
    return answer_index.index_of(grids, files.digests)


@lru_cache(maxsize=GRIDS)
def current_index(files: PublishedFiles) -> AnswerIndex | None:
    """Return the folder's index if it was made of the documents that are there now."""
    index = answer_index.parsed(files.index_file.content, files.index_file.path) if files.index_file else None
    return index if index is not None and index.sources == files.digests else None


def devices(files: PublishedFiles, only: frozenset[str] | None = None) -> tuple[str, ...]:
    index = current_index(files)
    if index is not None:
        return tuple(sorted(index.devices))
    return tuple(sorted({document(each, only).device for each in files.documents}))


@lru_cache(maxsize=GRIDS)
def device_grid(files: PublishedFiles, device: str, only: frozenset[str] | None = None) -> Grid:
    """Return the grid of one device, from the index if the folder has a current one."""
    index = current_index(files)
    return grid_of(of_device(files, device, only)) if index is None else index.grid(device, only)


def of_device(files: PublishedFiles, device: str, only: frozenset[str] | None = None) -> list[MatrixDocument]:
    return [each for file in files.documents if (each := document(file, only)).device == device]


@lru_cache(maxsize=DOCUMENTS)
def document(file: File, only: frozenset[str] | None = None) -> MatrixDocument:
    return data.validated(trimmed(data.parsed(file.content, file.path), only), file.path)


def trimmed(document: dict[str, Any], only: Container[str] | None = None) -> dict[str, Any]:
    """Remove the parts of a document that no answer uses, so that parsing it takes less than a second."""
    document.pop("devices", None)
    cells = document.get("cells")
    if only is not None and isinstance(cells, list):
        cells = [cell for cell in cells if isinstance(cell, dict) and current_case_id(str(cell.get("case"))) in only]
        document["cells"] = cells
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("verdict") in {"pass", "skip"}:
            cell.update(checks=(), metrics={}, facts={})
    return document


def columns(documents: Iterable[MatrixDocument]) -> tuple[SetRecord, ...]:
    """Return each set once, as last recorded; a record with an installed environment comes first."""
    records = sorted(
        ((document.run.started, column) for document in documents for column in document.sets),
        key=lambda each: (bool(each[1].lock) and not each[1].blocked, each[0]),
    )
    return tuple({column.key: column for _, column in records}.values())


def latest(documents: Iterable[MatrixDocument], locks: Mapping[str, str]) -> Iterator[Outcome]:
    """Yield the outcomes of every cell under the lock of its set, from the newest code and machine that ran it.

    Numbers the repeats of several documents consecutively. Leaves out cells that ran under another lock.
    """
    cells: dict[tuple[str, str], list[Outcome]] = {}
    for document in documents:
        for outcome in document.cells:
            if has_lock(outcome.lock, locks.get(outcome.set, "")):
                cells.setdefault((outcome.case, outcome.set), []).append(outcome)
    for outcomes in cells.values():
        newest = max(outcomes, key=lambda each: (bool(each.lock), each.started))  # without a lock, nothing could run
        counted = (each for each in outcomes if are_repeats(each, newest))
        yield from (each.model_copy(update={"repeat": number}) for number, each in enumerate(counted, start=1))


def has_lock(lock: str, digest: str) -> bool:
    """Tell if an outcome's lock (digest and build of torch) has the digest, or is unknown."""
    return not lock or not digest or EnvironmentKey.parse(lock).lock == digest


def are_repeats(one: Outcome, other: Outcome) -> bool:
    """Tell if two outcomes of a cell have the same lock, hardware and case code."""
    same_place = (one.lock, one.hardware) == (other.lock, other.hardware)
    return same_place and one.has_same_code(other)
