"""NCCL's flight recorder: which collective the ranks disagree on, when a cell on GPUs hangs.

Torch keeps the last collectives of a rank and dumps them when a byte is written into a pipe that it made: a thread of
its own does that, whatever the rank itself is waiting for. The file is a pickle of plain values.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Entry = Mapping[str, Any]

KEPT = "2000"  # collectives
SHOWN = 20  # the last ones, in a rank's summary
LOOKS_MS = 500  # how often torch looks into the pipe
DUMP_S = 8.0
POLL_S = 0.05
LIBRARIES = ("/torch/", "<frozen")  # whose frames do not say where the program called


def variables(folder: Path) -> dict[str, str]:
    """For a rank's environment, before its process group; older and newer versions of torch name them differently.

    Before 2.7 torch looks into the pipe every ten minutes, unless it is also to dump when a collective fails.
    """
    dumps = str(folder / "flight-")
    return {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": KEPT,
        "TORCH_FR_BUFFER_SIZE": KEPT,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dumps,
        "TORCH_FR_DUMP_TEMP_FILE": dumps,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / "flight-ask-"),
        "TORCH_NCCL_ENABLE_MONITORING": "1",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_COORD_CHECK_MILSEC": str(LOOKS_MS),
    }


def ask(folder: Path, ranks: Sequence[int]) -> list[int]:
    """Tell ranks to dump what they recorded; those that listen."""
    for rank in ranks:
        (folder / f"flight-{rank}").unlink(missing_ok=True)  # of an error that it has survived, or of an earlier act
    return [rank for rank in ranks if told_to_dump(folder / f"flight-ask-{rank}.pipe")]


def answered(folder: Path, asked: Sequence[int], limit_s: float = DUMP_S) -> dict[int, list[Entry]]:
    """The collectives of each rank that was asked; one that does not answer in time is left out."""
    found: dict[int, list[Entry]] = {}
    end = time.monotonic() + limit_s
    while len(found) < len(asked) and time.monotonic() < end:
        time.sleep(POLL_S)
        for rank in asked:
            if rank not in found:
                with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError, LookupError, TypeError, ValueError):
                    found[rank] = read(folder / f"flight-{rank}")
    return found


def recorded(folder: Path, ranks: Sequence[int], limit_s: float = DUMP_S) -> dict[int, list[Entry]]:
    """The collectives of each rank, asked for now."""
    return answered(folder, ask(folder, ranks), limit_s)


def told_to_dump(pipe: Path) -> bool:
    """Whether somebody listens."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "wb", buffering=0) as asked:
        asked.write(b"1\n")
    return True


class Plain(pickle.Unpickler):
    """Reads values and nothing that runs."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"no plain value: {module}.{name}")


def read(path: Path) -> list[Entry]:
    with path.open("rb") as file:
        entries: list[Entry] = Plain(file).load()["entries"]
    return entries


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
    return {number(entry): call(entry) for entry in entries if group_of(entry) == group and not is_p2p(entry)}


def group_of(entry: Entry) -> str:
    """Of torch 2.3, which records no groups, all are one."""
    return str(entry.get("process_group", ""))


def number(entry: Entry) -> int:
    return int(entry["collective_seq_id"] if "collective_seq_id" in entry else entry.get("seq_id", 0))


def is_p2p(entry: Entry) -> bool:
    return bool(entry.get("is_p2p", False))


def call(entry: Entry) -> str:
    """As ``all_reduce of [64, 32] Float``."""
    name = str(entry.get("profiling_name", "a collective")).removeprefix("nccl:")
    sizes, kinds = entry.get("input_sizes", ()), entry.get("input_dtypes", ())
    shapes = ", ".join(f"{list(size)} {kind}".strip() for size, kind in zip_longest(sizes, kinds, fillvalue=""))
    return f"{name} of {shapes}" if shapes else name


def told(what: str | None, number: int) -> str:
    return f"never entered collective {number}" if what is None else f"is in collective {number}, {what}"


def summary(entries: Sequence[Entry]) -> str:
    """The last collectives of a rank, a line each: number in its group, what, how far it came, and who called."""
    if not entries:
        return "no collective was entered\n"
    left_out = len(entries) - SHOWN
    head = [f"({left_out} earlier ones)"] if left_out > 0 else []
    return "\n".join([*head, *map(line, entries[-SHOWN:])]) + "\n"


def line(entry: Entry) -> str:
    group = entry.get("process_group", ())
    name = " ".join(map(str, group)) if isinstance(group, (tuple, list)) else str(group)
    return f"{number(entry):5}  {entry.get('state', ''):9}  {call(entry)}  [group {name}]  {caller(entry)}".rstrip()


def caller(entry: Entry) -> str:
    """Whose line called, as ``training.py:128 in micro_step``."""
    frames = [frame for frame in entry.get("frames") or () if isinstance(frame, dict)]
    own = [frame for frame in frames if not any(word in str(frame.get("filename")) for word in LIBRARIES)]
    if not own:
        return ""
    frame = own[0]
    return f"{str(frame.get('filename')).rpartition('/')[2]}:{frame.get('line')} in {frame.get('name')}"
