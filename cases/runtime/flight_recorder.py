"""Reads the flight recorder of torch, to find the collective that the ranks of a hanging cell disagree on.

Torch keeps the last collectives of a rank. A thread of ours in each rank dumps them on request, whatever the rank
itself waits for. Torch's own thread (``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``) exists in some versions only, and before 2.7
it does other things too. A dump is a pickle of plain values.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import threading
import time
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Entry = Mapping[str, Any]

KEPT = "2000"  # collectives
SHOWN = 20  # the last ones, in a rank's summary
DUMP_S = 5.0
POLL_S = 0.05
UNEVEN = ("scatter", "all_to_all", "all_to_all_single", "alltoall", "alltoall_base")
# Newest first. Without stack traces: to name their frames, torch imports its compiler, which takes seconds.
RECORDERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("_dump_fr_trace", {"includeStackTraces": False, "backend": "nccl2"}),  # the default from 2.15
    ("_dump_nccl_trace", {"includeStackTraces": False}),
    ("_dump_nccl_trace", {}),  # 2.3
    ("_dump_fr_trace", {"includeStackTraces": False}),  # of gloo
)


def variables(folder: Path) -> dict[str, str]:
    """Variables to set before a rank creates its process group, under the names of older and newer versions of torch.

    Torch itself dumps to these files when a collective fails.
    """
    dumps = str(folder / "flight-of-torch-")
    return {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": KEPT,
        "TORCH_FR_BUFFER_SIZE": KEPT,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dumps,
        "TORCH_FR_DUMP_TEMP_FILE": dumps,
    }


def listen(folder: Path, rank: int, dump: Callable[[], bytes] | None = None) -> None:
    """Dump this rank's records on every request, as long as the process lives.

    Without a pipe in the folder no request can arrive, and the cell runs all the same.
    """
    pipe = folder / f"flight-ask-{rank}.pipe"
    with contextlib.suppress(OSError):
        pipe.unlink(missing_ok=True)  # an earlier stage may have left one
        os.mkfifo(pipe)
        reading = os.open(pipe, os.O_RDWR)  # our own writer keeps the pipe open
        arguments = (reading, folder / f"flight-{rank}", dump or dump_records)
        threading.Thread(target=answer_requests, args=arguments, daemon=True, name="flight recorder").start()


def answer_requests(reading: int, kept: Path, dump: Callable[[], bytes]) -> None:
    while os.read(reading, 1):
        unfinished = kept.with_suffix(".unfinished")
        try:
            unfinished.write_bytes(dump())
        except Exception as error:  # noqa: BLE001 - the supervisor reads it
            unfinished.write_bytes(pickle.dumps({"error": f"{type(error).__name__}: {error}"}))
        unfinished.rename(kept)


def dump_records() -> bytes:
    """The records of the first recorder of torch that has any for this process's groups.

    Raises:
        UnrecordedError: this version has no recorder.
    """
    c10d = importlib.import_module("torch._C._distributed_c10d")
    found: list[bytes] = []
    for recorder, arguments in RECORDERS:
        with contextlib.suppress(AttributeError, TypeError, RuntimeError):  # a version that has another
            found.append(getattr(c10d, recorder)(**arguments))
    if not found:
        raise UnrecordedError("this torch records no collectives")
    return next((dump for dump in found if entries_of(dump)), found[0])


def request_dumps(folder: Path, ranks: Sequence[int]) -> list[int]:
    """Request a dump of each rank; returns the ranks that listen."""
    for rank in ranks:
        (folder / f"flight-{rank}").unlink(missing_ok=True)  # an earlier stage may have left one
    return [rank for rank in ranks if send_request(folder / f"flight-ask-{rank}.pipe")]


@dataclass
class Dumps:
    """The records of ranks, or their errors. A rank that did not answer in time is in neither."""

    entries: dict[int, list[Entry]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


def read_dumps(folder: Path, ranks: Sequence[int], limit_s: float = DUMP_S) -> Dumps:
    """Read the dumps of the ranks that listen."""
    found = Dumps()
    end = time.monotonic() + limit_s
    while (waiting := [rank for rank in ranks if rank not in {**found.entries, **found.errors}]) and (
        time.monotonic() < end
    ):
        time.sleep(POLL_S)
        for rank in waiting:
            dump = folder / f"flight-{rank}"
            try:
                if dump.exists():
                    found.entries[rank] = entries_of(dump.read_bytes())
            except Exception as error:  # noqa: BLE001 - any version may write an unreadable one
                found.errors[rank] = f"{type(error).__name__}: {error}"
    return found


def send_request(pipe: Path) -> bool:
    """Request a dump; returns whether a rank listens."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "wb", buffering=0) as sink:
        sink.write(b"1")
    return True


class UnrecordedError(Exception):
    """A rank could not dump its records; the text has its error."""


class PlainUnpickler(pickle.Unpickler):
    """Reads plain values, and no objects that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"no plain value: {module}.{name}")


def entries_of(dump: bytes) -> list[Entry]:
    found: dict[str, Any] = PlainUnpickler(io.BytesIO(dump)).load()
    if "error" in found:
        raise UnrecordedError(found["error"])
    return list(found.get("entries", ()))


def disagreement(recorded: Mapping[int, Sequence[Entry]]) -> str:
    """A description of the first collective that some rank did not enter, or entered differently; empty if none.

    Collectives that the recorder of a rank no longer holds do not count.
    """
    for group in dict.fromkeys(group_of(entry) for each in recorded.values() for entry in each):
        calls = {rank: in_group(entries, group) for rank, entries in recorded.items()}
        calls = {rank: numbered for rank, numbered in calls.items() if numbered}
        for number in sorted({number for numbered in calls.values() for number in numbered}):
            calls_of_rank = {rank: numbered.get(number) for rank, numbered in calls.items() if number >= min(numbered)}
            if len(set(calls_of_rank.values())) > 1:
                return "; ".join(
                    f"rank {rank} {position(name, number)}" for rank, name in sorted(calls_of_rank.items())
                )
    idle = [rank for rank, entries in recorded.items() if not entries]
    if idle and len(idle) < len(recorded):
        return f"rank {', '.join(map(str, idle))} entered no collective"
    return ""


def in_group(entries: Sequence[Entry], group: str) -> dict[int, str]:
    """The collectives of a group by their number in it."""
    return {number(entry): common_part(entry) for entry in entries if group_of(entry) == group and not is_p2p(entry)}


def common_part(entry: Entry) -> str:
    """The part of a call that must be equal on every rank: in some collectives, sizes may differ."""
    return name_of(entry) if name_of(entry) in UNEVEN else call(entry)


def group_of(entry: Entry) -> str:
    """The group of a collective; torch 2.3 records no groups, so all collectives are in one."""
    return str(entry.get("process_group", ""))


def number(entry: Entry) -> int:
    return int(entry["collective_seq_id"] if "collective_seq_id" in entry else entry.get("seq_id", 0))


def is_p2p(entry: Entry) -> bool:
    return bool(entry.get("is_p2p", False))


def name_of(entry: Entry) -> str:
    """The name of a collective without that of the library."""
    return str(entry.get("profiling_name", "a collective")).rpartition(":")[2]


def call(entry: Entry) -> str:
    """A description such as ``all_reduce of [64, 32] Float``."""
    name = name_of(entry)
    sizes, kinds = entry.get("input_sizes", ()), entry.get("input_dtypes", ())
    shapes = ", ".join(f"{list(size)} {kind}".strip() for size, kind in zip_longest(sizes, kinds, fillvalue=""))
    return f"{name} of {shapes}" if shapes else name


def position(name: str | None, number: int) -> str:
    return f"never entered collective {number}" if name is None else f"is in collective {number}, {name}"


def summary(entries: Sequence[Entry]) -> str:
    """The last collectives of a rank, one on each line: number in its group, state, and description."""
    if not entries:
        return "torch recorded no collective\n"
    left_out = len(entries) - SHOWN
    head = [f"({left_out} earlier ones)"] if left_out > 0 else []
    return "\n".join([*head, *map(line, entries[-SHOWN:])]) + "\n"


def line(entry: Entry) -> str:
    group = entry.get("process_group", ())
    name = " ".join(map(str, group)) if isinstance(group, (tuple, list)) else str(group)
    return f"{number(entry):5}  {entry.get('state', ''):9}  {call(entry)}  [group {name}]"
