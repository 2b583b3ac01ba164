"""Stores a run on disk: its request, its sets, and one line for each finished cell.

Killing the harness at any moment loses at most the cells in flight: a line is on disk before the next cell is reported,
and a torn last line is ignored.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self, TextIO, TypeVar

from pydantic import ValidationError

from matrix.errors import UserError
from matrix.run.outcome import SCHEMA, Outcome, RunRecord, SetRecord, Stored
from matrix.run.secrets import masked_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

RUN: Final = "run.json"
SETS: Final = "sets.json"
OUTCOMES: Final = "outcomes.jsonl"
LOCK: Final = ".lock"
FOLDER: Final = "%Y-%m-%dT%H-%M-%SZ"  # name of a new run's directory, of its start
TORN: Final = "ends in an incomplete line, whose cell counts as not run; run it again with --resume"
WORK: Final = "work"  # scratch files of the set that is being measured
Kind = TypeVar("Kind", bound=Stored)


@dataclass(kw_only=True)
class Store:
    """One run directory. This process holds its lock until ``close``."""

    directory: Path
    record: RunRecord
    sets: dict[str, SetRecord] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    new: bool = False
    new_folders: tuple[Path, ...] = ()  # created for a new run, innermost first
    lock: TextIO = field(repr=False)
    sink: TextIO = field(repr=False)

    @classmethod
    def create(cls, directory: Path, record: RunRecord) -> Self:
        """Begin a run in a new or empty directory.

        Raises:
            UserError: the directory has a run already, is in use, or cannot be written.
        """
        new_folders = tuple(each for each in (directory, *directory.parents) if not each.exists())
        lock = lock_directory(directory)
        if (directory / RUN).exists():
            lock.close()
            raise UserError(f"{directory} has a run already; continue it with --resume, or choose another --out")
        record = masked_record(record)
        write_json(directory / RUN, record.model_dump(mode="json", by_alias=True))
        sink = (directory / OUTCOMES).open("a", encoding="utf-8")
        return cls(directory=directory, record=record, new=True, new_folders=new_folders, lock=lock, sink=sink)

    @classmethod
    def resume(cls, directory: Path) -> Self:
        """Continue a run.

        Raises:
            UserError: there is no run, it is in use, or it was written by a newer harness.
        """
        if not (directory / RUN).exists():
            raise UserError(f"{directory} has no run to resume; leave --resume out to start one there")
        lock = lock_directory(directory)
        try:
            record, sets, outcomes = read(directory)
        except UserError:
            lock.close()
            raise
        drop_torn_line(directory / OUTCOMES)
        sink = (directory / OUTCOMES).open("a", encoding="utf-8")
        by_key = {each.key: each for each in sets}
        return cls(directory=directory, record=record, sets=by_key, outcomes=list(outcomes), lock=lock, sink=sink)

    def append(self, outcome: Outcome) -> None:
        """Store an outcome. It is on disk when this returns."""
        outcome = masked_record(outcome)
        try:
            self.sink.write(outcome.model_dump_json(by_alias=True) + "\n")
            self.sink.flush()
            os.fsync(self.sink.fileno())
        except OSError as error:
            raise UserError(
                f"{self.directory} cannot be written ({error.strerror}); free some space, then continue with --resume"
            ) from error
        self.outcomes.append(outcome)

    def note(self, record: SetRecord) -> None:
        self.sets[record.key] = masked_record(record)
        write_json(self.directory / SETS, [each.model_dump(mode="json", by_alias=True) for each in self.sets.values()])

    def replan(self, record: RunRecord) -> None:
        """Replace the record, as a resumed run may have more cells than before."""
        self.record = record = masked_record(record)
        write_json(self.directory / RUN, record.model_dump(mode="json", by_alias=True))

    def abandon(self) -> None:
        """Remove a new run without outcomes: bad input leaves nothing behind."""
        if self.outcomes or not self.new:
            return
        shutil.rmtree(self.directory / WORK, ignore_errors=True)
        for name in (SETS, OUTCOMES, LOCK, RUN):
            (self.directory / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # another process created a file there
            for folder in self.new_folders:
                folder.rmdir()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # ``append`` reported a full disk already
            self.sink.close()
        self.lock.close()


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as read from its directory. ``problems`` has one sentence for each kind of damage."""

    record: RunRecord
    sets: tuple[SetRecord, ...]
    outcomes: tuple[Outcome, ...]
    problems: tuple[str, ...] = ()


def read(directory: Path) -> tuple[RunRecord, tuple[SetRecord, ...], tuple[Outcome, ...]]:
    """Return the readable part of a run, finished or not.

    Raises:
        UserError: there is no run, ``run.json`` or ``sets.json`` is damaged, or a newer harness wrote it.
    """
    stored = read_run(directory)
    return stored.record, stored.sets, stored.outcomes


def read_run(directory: Path) -> StoredRun:
    """Return the readable part of a run, finished or not, and its damage.

    Raises:
        UserError: there is no run, ``run.json`` or ``sets.json`` is damaged, or a newer harness wrote it.
    """
    record, sets = read_head(directory)
    found = list(lines(directory / OUTCOMES))
    outcomes = tuple(outcome for _, _, outcome in found if outcome is not None)
    damaged = [number for number, _, outcome in found if outcome is None]
    return StoredRun(record=record, sets=sets, outcomes=outcomes, problems=damage_words(directory / OUTCOMES, damaged))


def read_head(directory: Path) -> tuple[RunRecord, tuple[SetRecord, ...]]:
    """Return the request and the sets of a run.

    Raises:
        UserError: there is no run, ``run.json`` or ``sets.json`` is damaged, or a newer harness wrote it.
    """
    if not (directory / RUN).exists():
        raise UserError(f"{directory} has no {RUN}, so it is no run; `ftmatrix run` writes one")
    record = checked(RunRecord, loaded(read_text(directory / RUN), RUN), RUN)
    listed = loaded(read_text(directory / SETS), SETS) if (directory / SETS).exists() else []
    return record, tuple(checked(SetRecord, each, SETS) for each in listed)


def lines(path: Path) -> Iterator[tuple[int, int, Outcome | None]]:
    """Yield the number of each whole line, its place in bytes, and its outcome; None if it is not JSON in UTF-8.

    Raises:
        UserError: a line is JSON but no outcome, or a newer harness wrote it.
    """
    if not path.exists():
        return
    place = 0
    with path.open("rb") as file:  # bytes: a line may be torn in the middle of a character
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, place, parsed_line(line, f"{path.name} line {number}")
            place += len(line)


def parsed_line(line: bytes, name: str) -> Outcome | None:
    try:
        data = json.loads(line)
    except ValueError:  # also raised for invalid UTF-8
        return None
    return checked(Outcome, data, name)


def damage_words(path: Path, damaged: Sequence[int]) -> tuple[str, ...]:
    """Return a sentence about dropped lines of a file of outcomes, and one about an incomplete last line."""
    torn = (f"{path.name} {TORN}",) if is_torn(path) else ()
    if not damaged:
        return torn
    first = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")  # noqa: PLR2004 - enough to look at
    count = "1 damaged line was" if len(damaged) == 1 else f"{len(damaged)} damaged lines were"
    return (f"{count} dropped from {path.name} (line {first}); run the cells again with --resume", *torn)


def is_torn(path: Path) -> bool:
    """Tell if a file of outcomes ends in the middle of a line: its writer was killed."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def drop_torn_line(path: Path) -> None:
    """Remove the incomplete last line of a killed writer."""
    if path.exists():
        data = path.read_bytes()
        os.truncate(path, data.rfind(b"\n") + 1)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except ValueError as error:
        raise UserError(f"{path.name} is damaged ({error}); remove it, or start a new run with another --out") from None


def loaded(text: str, name: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"{name} is damaged ({error}); remove it, or start a new run with another --out") from error


def checked(kind: type[Kind], data: Any, name: str) -> Kind:
    """Validate stored data.

    Raises:
        UserError: the data has a newer schema, or does not fit the type.
    """
    if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
        raise UserError(
            f"{name}: schema {data['schema']} is newer than {SCHEMA}, the newest known here; update ftmatrix"
        )
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "top"
        raise UserError(f"{name}: {place}: {first['msg']}; it was not written by ftmatrix, or was edited") from None


def lock_directory(directory: Path) -> TextIO:
    """Create the directory and lock it for this process.

    Raises:
        UserError: the directory cannot be written, or another process holds the lock.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{directory} cannot be written ({error.strerror}); choose another --out") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise UserError(
            f"{directory} is in use by a run ({holder}); wait for it to end, or choose another --out"
        ) from None
    lock.truncate(0)
    lock.write(f"pid {os.getpid()}")
    lock.flush()
    return lock


def write_json(path: Path, data: Any) -> None:
    """Replace a file by JSON in one step, so that a reader never sees a part of it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def newest_runs(runs: Path) -> tuple[Path, ...]:
    """The run that started last, by the time in its record; every run of the command that started it.

    Raises:
        UserError: there is no run.
    """
    records = [*runs.glob(f"*/{RUN}"), *runs.glob(f"*/*/{RUN}")]
    if not records:
        raise UserError(f"{runs} has no run; start one with `ftmatrix run`")
    newest = max(records, key=start_time).parent
    return (newest,) if newest.parent == runs else runs_in(newest.parent)


def runs_in(directory: Path) -> tuple[Path, ...]:
    """The runs of a directory that ``ftmatrix run`` wrote: itself, or the run of each device that it holds."""
    held = () if (directory / RUN).exists() else sorted(directory.glob(f"*/{RUN}"))
    return tuple(each.parent for each in held) or (directory,)


def start_time(record: Path) -> float:
    """The start time in a run's record, or the file's modification time if the record cannot be read."""
    try:
        return datetime.fromisoformat(json.loads(record.read_text(encoding="utf-8"))["started"]).timestamp()
    except (OSError, ValueError, KeyError, TypeError):
        return record.stat().st_mtime
