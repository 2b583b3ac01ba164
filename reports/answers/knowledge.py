"""Loads all published results as one grid per device, for the commands that answer questions.

Reads every ``outcomes.parquet`` or ``matrix.json`` in a folder and below it, or the folder's index of them. A grid
never mixes devices.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from cases.space.verdict import RED
from matrix.errors import UserError
from matrix.keys import EnvironmentKey
from matrix.run import store
from reports.answers import answer_index
from reports.answers.diagnosis.diagnose import is_ours
from reports.results import document as data
from reports.results import stored_results
from reports.results.grid import grid
from reports.results.outcome_rows import OutcomeRow, have_same_code, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from matrix.run.outcome import SetRecord
    from reports.answers.answer_index import AnswerIndex
    from reports.results.grid import Grid
    from reports.results.outcome_rows import AnyOutcome
    from reports.results.stored_results import StoredResults

PUBLISHED: Final = Path(__file__).parents[1] / "published"
# A process that asks again for the same results gets those that it has; what it keeps is limited.
GRIDS: Final = 4
RESULTS: Final = 64


class File(NamedTuple):
    """A file of results as it is stored. The content is the identity: a file that changes is read again."""

    path: Path
    content: bytes


class PublishedFiles(NamedTuple):
    """The files of results in a folder and below it, and the index of the folder."""

    folder: Path
    files: tuple[File, ...]
    index_file: File | None

    @property
    def digests(self) -> dict[str, str]:
        return answer_index.digests((path.relative_to(self.folder).as_posix(), each) for path, each in self.files)


def load(folder: Path = PUBLISHED, *, device: str = "cpu") -> Grid:
    """Return the grid of one kind of device (``cpu`` or ``cuda``).

    Where several runs have the same cell, the newest lock, case code and hardware count, with all their repeats.

    Raises:
        UserError: there is no result of that device, or a file cannot be read.
    """
    files = files_in(folder)
    if device not in devices(files):
        raise UserError(f"{folder}: holds no results measured on {device}; give a folder of published results")
    return device_grid(files, device)


def by_device(folder: Path = PUBLISHED, *, only: Collection[str] | None = None) -> dict[str, Grid]:
    """Return the grid of each device; ``only`` restricts it to some cases, which is quicker.

    Raises:
        UserError: there is no result at all, or a file cannot be read.
    """
    files, cases = files_in(folder), None if only is None else frozenset(only)
    if not devices(files):
        raise UserError(f"{folder}: {stored_results.NONE}")
    return {device: device_grid(files, device, cases) for device in devices(files)}


def other_devices(than: str, directories: Iterable[Path]) -> dict[str, Grid]:
    """Return the grids of some runs by device, which must differ from ``than``.

    Raises:
        UserError: there is no such run, it cannot be read, or it is of the same kind.
    """
    runs_by_device: dict[str, list[StoredResults]] = {}
    for directory in directories:
        run = stored_results.read_run(directory)
        if run.device == than:
            raise UserError(f"{directory} is a run on {than} as well: a run is compared with those of another device")
        runs_by_device.setdefault(run.device, []).append(run)
    return {device: grid_of(each) for device, each in runs_by_device.items()}


def grid_of(runs: Sequence[StoredResults]) -> Grid:
    """Return the grid of one device's runs, without cells that only a since-repaired harness bug made red."""
    newest = max(runs, key=lambda each: each.record.started)
    nothing_planned = newest.record.model_copy(update={"planned": ()})
    sets = columns(runs)
    pins = {column.key: column.pins for column in sets}
    measured = latest(runs, {column.key: column.lock for column in sets})
    return grid(nothing_planned, sets, (each for each in measured if not is_harness_bug(each, pins.get(each.set, {}))))


def is_harness_bug(outcome: AnyOutcome, pins: Mapping[str, str]) -> bool:
    """Tell if only a since-repaired bug of the harness made an outcome red; only red ones are read."""
    return outcome.verdict in RED and is_ours(whole(outcome), pins)


def stored(folder: Path) -> Iterator[StoredResults]:
    """Yield the results of each run in a folder and below it.

    Raises:
        UserError: a file cannot be read.
    """
    return (each for file in files_in(folder).files if (each := results(file)) is not None)


def outcomes(folder: Path, *, only: Collection[str] | None = None) -> Iterator[AnyOutcome]:
    """Yield the outcomes of a run, or those of all published results below a folder without superseded attempts.

    They are unread as far as they are in a file that allows it. ``only`` restricts them to some cases, which is
    quicker.

    Raises:
        UserError: the folder holds neither, or a file is damaged.
    """
    if (folder / store.RUN).exists():
        yield from (each for each in store.read(folder)[2] if only is None or each.case in only)
        return
    if only is not None:
        files = stored_results.locate_all(folder)
        if not files:
            raise UserError(f"{folder}: {stored_results.NONE}")
        yield from (each for path in files for each in stored_results.outcomes_of(path, only))
        return
    runs = list(stored(folder))
    if not runs:
        raise UserError(f"{folder}: {stored_results.NONE}")
    yield from (each for run in runs for each in run.counted)


def files_in(folder: Path) -> PublishedFiles:
    path = folder / answer_index.FILE
    return PublishedFiles(
        folder=folder,
        files=tuple(File(each, data.content(each)) for each in stored_results.locate_all(folder)),
        index_file=File(path, data.content(path)) if path.exists() else None,
    )


def index_content(folder: Path) -> bytes:
    """Return the content of a new index of a folder's results.

    Raises:
        UserError: the folder has no results, or a file cannot be read.
    """
    files = files_in(folder)._replace(index_file=None)
    grids = {device: grid_of(of_device(files, device)) for device in devices(files)}
    if not grids:
        raise UserError(f"{folder}: {stored_results.NONE}")
    return answer_index.index_of(grids, files.digests)


@lru_cache(maxsize=GRIDS)
def current_index(files: PublishedFiles) -> AnswerIndex | None:
    """Return the folder's index if it was made of the files that are there now."""
    index = answer_index.parsed(files.index_file.content, files.index_file.path) if files.index_file else None
    return index if index is not None and index.sources == files.digests else None


def devices(files: PublishedFiles) -> tuple[str, ...]:
    index = current_index(files)
    if index is not None:
        return tuple(sorted(index.devices))
    return tuple(sorted({each.device for file in files.files if (each := results(file)) is not None}))


@lru_cache(maxsize=GRIDS)
def device_grid(files: PublishedFiles, device: str, only: frozenset[str] | None = None) -> Grid:
    """Return the grid of one device, from the index if the folder has a current one."""
    index = current_index(files)
    return grid_of(of_device(files, device, only)) if index is None else index.grid(device, only)


def of_device(files: PublishedFiles, device: str, only: frozenset[str] | None = None) -> list[StoredResults]:
    """Return the results of a device; ``only`` restricts them to some cases."""
    found = (each for file in files.files if (each := results(file)) is not None and each.device == device)
    return [each if only is None else restricted(each, only) for each in found]


def restricted(run: StoredResults, only: frozenset[str]) -> StoredResults:
    return replace(run, outcomes=tuple(each for each in run.outcomes if each.case in only))


@lru_cache(maxsize=RESULTS)
def results(file: File) -> StoredResults | None:
    return stored_results.parsed(file.content, file.path)


def columns(runs: Iterable[StoredResults]) -> tuple[SetRecord, ...]:
    """Return each set once, as last recorded; a record with an installed environment comes first."""
    records = sorted(
        ((run.record.started, column) for run in runs for column in run.sets),
        key=lambda each: (bool(each[1].lock) and not each[1].blocked, each[0]),
    )
    return tuple({column.key: column for _, column in records}.values())


def latest(runs: Iterable[StoredResults], locks: Mapping[str, str]) -> Iterator[AnyOutcome]:
    """Yield the outcomes of every cell under the lock of its set, from the newest code and machine that ran it.

    Numbers the repeats of several runs consecutively. Leaves out cells that ran under another lock.
    """
    cells: dict[tuple[str, str], list[AnyOutcome]] = {}
    for run in runs:
        for outcome in run.counted:
            if has_lock(outcome.lock, locks.get(outcome.set, "")):
                cells.setdefault((outcome.case, outcome.set), []).append(outcome)
    for outcomes in cells.values():
        newest = max(outcomes, key=lambda each: (bool(each.lock), each.started))  # without a lock, nothing could run
        counted = (each for each in outcomes if are_repeats(each, newest))
        yield from (numbered(each, number) for number, each in enumerate(counted, start=1))


def numbered(outcome: AnyOutcome, repeat: int) -> AnyOutcome:
    if outcome.repeat == repeat:
        return outcome
    if isinstance(outcome, OutcomeRow):
        return replace(outcome, repeat=repeat)
    return outcome.model_copy(update={"repeat": repeat})


def has_lock(lock: str, digest: str) -> bool:
    """Tell if an outcome's lock (digest and build of torch) has the digest, or is unknown."""
    return not lock or not digest or EnvironmentKey.parse(lock).lock == digest


def are_repeats(one: AnyOutcome, other: AnyOutcome) -> bool:
    """Tell if two outcomes of a cell have the same lock, hardware and case code."""
    same_place = (one.lock, one.hardware) == (other.lock, other.hardware)
    return same_place and have_same_code(one, other)
