"""The flight recorder of torch: which collective the ranks disagree on, when a cell hangs.

Torch keeps the last collectives of a rank. A thread of ours in each rank waits to be asked for them, whatever the rank
itself is waiting for; torch's own (``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``) listens in some versions only, and before 2.7
only if it may also do other things. What is dumped is a pickle of plain values.
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
# Newest first. Without stack traces: to put names to their frames, torch imports its compiler, which takes seconds.
RECORDERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("_dump_fr_trace", {"includeStackTraces": False, "backend": "nccl2"}),  # the default from 2.15
    ("_dump_nccl_trace", {"includeStackTraces": False}),
    ("_dump_nccl_trace", {}),  # 2.3
    ("_dump_fr_trace", {"includeStackTraces": False}),  # of gloo
)


def variables(folder: Path) -> dict[str, str]:
    """For a rank's environment, before its process group; older and newer versions of torch name them differently.

    The dumps are those that torch makes unasked when a collective fails.
    """
    dumps = str(folder / "flight-of-torch-")
    return {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": KEPT,
        "TORCH_FR_BUFFER_SIZE": KEPT,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dumps,
        "TORCH_FR_DUMP_TEMP_FILE": dumps,
    }


def listen(folder: Path, rank: int, dump: Callable[[], bytes] | None = None) -> None:
    """In a rank: dump what was recorded whenever somebody asks, as long as the process lives.

    Where the folder can hold no pipe, nobody is answered, and the cell runs all the same.
    """
    pipe = folder / f"flight-ask-{rank}.pipe"
    with contextlib.suppress(OSError):
        pipe.unlink(missing_ok=True)  # an earlier act's
        os.mkfifo(pipe)
        reading = os.open(pipe, os.O_RDWR)  # with a writer of our own, no read meets an end
        wanted = (reading, folder / f"flight-{rank}", dump or dumped)
        threading.Thread(target=answer, args=wanted, daemon=True, name="flight recorder").start()


def answer(reading: int, kept: Path, dump: Callable[[], bytes]) -> None:
    while os.read(reading, 1):
        unfinished = kept.with_suffix(".unfinished")
        try:
            unfinished.write_bytes(dump())
        except Exception as error:  # noqa: BLE001 - who asked reads it
            unfinished.write_bytes(pickle.dumps({"error": f"{type(error).__name__}: {error}"}))
        unfinished.rename(kept)


def dumped() -> bytes:
    """What torch recorded of this process's groups: the first of its recorders that has anything.

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


def ask(folder: Path, ranks: Sequence[int]) -> list[int]:
    """Tell ranks to dump what they recorded; those that listen."""
    for rank in ranks:
        (folder / f"flight-{rank}").unlink(missing_ok=True)  # an earlier act's
    return [rank for rank in ranks if told_to_dump(folder / f"flight-ask-{rank}.pipe")]


@dataclass
class Answers:
    """What ranks recorded, and why some could not tell; who did not answer in time is in neither."""

    entries: dict[int, list[Entry]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


def answered(folder: Path, asked: Sequence[int], limit_s: float = DUMP_S) -> Answers:
    """The collectives of each rank that was asked."""
    found = Answers()
    end = time.monotonic() + limit_s
    while (waiting := [rank for rank in asked if rank not in {**found.entries, **found.errors}]) and (
        time.monotonic() < end
    ):
        time.sleep(POLL_S)
        for rank in waiting:
            dump = folder / f"flight-{rank}"
            try:
                if dump.exists():
                    found.entries[rank] = entries_of(dump.read_bytes())
            except Exception as error:  # noqa: BLE001 - of whatever version it is, one that cannot be read is said
                found.errors[rank] = f"{type(error).__name__}: {error}"
    return found


def told_to_dump(pipe: Path) -> bool:
    """Whether somebody listens."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "wb", buffering=0) as asked:
        asked.write(b"1")
    return True


class UnrecordedError(Exception):
    """A rank could not dump what torch recorded; its error is the text."""


class Plain(pickle.Unpickler):
    """Reads values and nothing that runs."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"no plain value: {module}.{name}")


def entries_of(dump: bytes) -> list[Entry]:
    found: dict[str, Any] = Plain(io.BytesIO(dump)).load()
    if "error" in found:
        raise UnrecordedError(found["error"])
    return list(found.get("entries", ()))


def disagreement(recorded: Mapping[int, Sequence[Entry]]) -> str:
    """The first collective of a group that some rank did not enter, or entered otherwise; empty if there is none.

    What the recorder of a rank has already forgotten counts for nothing.
    """
    for group in dict.fromkeys(group_of(entry) for each in recorded.values() for entry in each):
        calls = {rank: in_group(entries, group) for rank, entries in recorded.items()}
        calls = {rank: numbered for rank, numbered in calls.items() if numbered}
        for number in sorted({number for numbered in calls.values() for number in numbered}):
            said = {rank: numbered.get(number) for rank, numbered in calls.items() if number >= min(numbered)}
            if len(set(said.values())) > 1:
                return "; ".join(f"rank {rank} {told(what, number)}" for rank, what in sorted(said.items()))
    alone = [rank for rank, entries in recorded.items() if not entries]
    if alone and len(alone) < len(recorded):
        return f"rank {', '.join(map(str, alone))} entered no collective"
    return ""


def in_group(entries: Sequence[Entry], group: str) -> dict[int, str]:
    """What was called, by its number in the group."""
    return {number(entry): same_for_all(entry) for entry in entries if group_of(entry) == group and not is_p2p(entry)}


def same_for_all(entry: Entry) -> str:
    """What every rank has to call alike: of some collectives, ranks bring what differs in size."""
    return name_of(entry) if name_of(entry) in UNEVEN else call(entry)


def group_of(entry: Entry) -> str:
    """Of torch 2.3, which records no groups, all are one."""
    return str(entry.get("process_group", ""))


def number(entry: Entry) -> int:
    return int(entry["collective_seq_id"] if "collective_seq_id" in entry else entry.get("seq_id", 0))


def is_p2p(entry: Entry) -> bool:
    return bool(entry.get("is_p2p", False))


def name_of(entry: Entry) -> str:
    """Without the library's."""
    return str(entry.get("profiling_name", "a collective")).rpartition(":")[2]


def call(entry: Entry) -> str:
    """As ``all_reduce of [64, 32] Float``."""
    name = name_of(entry)
    sizes, kinds = entry.get("input_sizes", ()), entry.get("input_dtypes", ())
    shapes = ", ".join(f"{list(size)} {kind}".strip() for size, kind in zip_longest(sizes, kinds, fillvalue=""))
    return f"{name} of {shapes}" if shapes else name


def told(what: str | None, number: int) -> str:
    return f"never entered collective {number}" if what is None else f"is in collective {number}, {what}"


def summary(entries: Sequence[Entry]) -> str:
    """The last collectives of a rank, a line each: number in its group, how far it came, and what it is."""
    if not entries:
        return "torch recorded no collective\n"
    left_out = len(entries) - SHOWN
    head = [f"({left_out} earlier ones)"] if left_out > 0 else []
    return "\n".join([*head, *map(line, entries[-SHOWN:])]) + "\n"


def line(entry: Entry) -> str:
    group = entry.get("process_group", ())
    name = " ".join(map(str, group)) if isinstance(group, (tuple, list)) else str(group)
    return f"{number(entry):5}  {entry.get('state', ''):9}  {call(entry)}  [group {name}]"
