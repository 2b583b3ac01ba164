"""NCCL's flight recorder: which collective the ranks disagree on, when a cell on GPUs hangs.

Torch keeps the last collectives of a rank and dumps them when a byte is written into a pipe that it made: a thread of
its own does that, whatever the rank itself is waiting for. The file is a pickle of plain values.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Entry = Mapping[str, Any]

KEPT = "2000"  # collectives
DUMP_S = 8.0  # torch looks into the pipe once a second
POLL_S = 0.05


def variables(folder: Path) -> dict[str, str]:
    """For a rank's environment, before its process group; older and newer versions of torch name them differently."""
    dumps = str(folder / "flight-")
    return {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": KEPT,
        "TORCH_FR_BUFFER_SIZE": KEPT,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dumps,
        "TORCH_FR_DUMP_TEMP_FILE": dumps,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / "flight-ask-"),
    }


def recorded(folder: Path, ranks: Sequence[int], limit_s: float = DUMP_S) -> dict[int, list[Entry]]:
    """The collectives of each rank, asked for now; a rank that does not answer is left out."""
    asked = [rank for rank in ranks if told_to_dump(folder / f"flight-ask-{rank}.pipe")]
    found: dict[int, list[Entry]] = {}
    end = time.monotonic() + limit_s
    while len(found) < len(asked) and time.monotonic() < end:
        time.sleep(POLL_S)
        for rank in asked:
            if rank not in found:
                with contextlib.suppress(OSError, EOFError, pickle.UnpicklingError, KeyError, TypeError):
                    found[rank] = read(folder / f"flight-{rank}")
    return found


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
    for group in dict.fromkeys(str(entry["process_group"]) for each in recorded.values() for entry in each):
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
    return {
        int(entry["collective_seq_id"]): call(entry)
        for entry in entries
        if str(entry["process_group"]) == group and not entry.get("is_p2p", False)
    }


def call(entry: Entry) -> str:
    """As ``all_reduce of [64, 32] Float``."""
    name = str(entry["profiling_name"]).removeprefix("nccl:")
    tensors = zip(entry.get("input_sizes", ()), entry.get("input_dtypes", ()), strict=False)
    shapes = ", ".join(f"{list(size)} {kind}" for size, kind in tensors)
    return f"{name} of {shapes}" if shapes else name


def told(what: str | None, number: int) -> str:
    return f"never entered collective {number}" if what is None else f"is in collective {number}, {what}"
