"""What a rank died of, by name: the kinds of failure that a report counts, told by the words of an error or of a log.

An error that leaves a GPU's context unusable is a crash like a signal: no call of the process on that GPU works after
it, and which of its lines meets it first is chance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.space.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

LOG_TAIL = 20_000  # bytes
LONGEST_LINE = 300


@dataclass(frozen=True)
class Kind:
    """``words`` are searched for in an error's type and message, or in a line of a log."""

    name: str
    verdict: Verdict
    words: str

    def covers(self, text: str) -> bool:
        return re.search(self.words, text) is not None


SIGNAL = "ended by a signal"
SILENT_EXIT = "ended without a report"
HOST_MEMORY = "out of host memory"

# The first that fits counts. The words of a CUDA error are those of cudaGetErrorString; NCCL passes them on.
KINDS = (
    Kind("illegal memory access", Verdict.CRASH, "illegal memory access was encountered"),
    Kind("device-side assert", Verdict.CRASH, "device-side assert triggered"),
    Kind("misaligned address", Verdict.CRASH, r"(?i)(?:CUDA|Triton).{0,80}misaligned address"),
    Kind("illegal instruction", Verdict.CRASH, "an illegal instruction was encountered"),
    Kind("launch failure", Verdict.CRASH, "unspecified launch failure|the launch timed out and was terminated"),
    Kind(
        "hardware error",
        Verdict.CRASH,
        "uncorrectable (?:ECC|NVLink) error|hardware stack error",
    ),
    Kind(
        "out of device memory",
        Verdict.CRASH,
        r"CUDA out of memory|CUDA error: out of memory|Cuda failure \d* ?'out of memory'|CUBLAS_STATUS_ALLOC_FAILED",
    ),
    Kind(HOST_MEMORY, Verdict.CRASH, r"DefaultCPUAllocator: |^MemoryError|Cannot allocate memory"),
    Kind(
        "NCCL error",
        Verdict.FAIL,
        r"NCCL error|^DistBackendError|\bnccl(?:Invalid|Unhandled|Internal|System|Remote)\w+",
    ),
)

# What a rank says when another one is gone: its own doing is not to blame, as long as another's may be.
FOLLOWS = (
    r"[Cc]onnection (?:was )?(?:closed|reset|refused)|[Bb]roken pipe|remote process exit|ncclRemoteError|"
    r"NCCL communicator was aborted|[Ff]ailed to recv|Socket (?:Timeout|closed)|caused pair closure"
)


def kind(text: str) -> Kind | None:
    return next((each for each in KINDS if each.covers(text)), None)


def of_error(error: Mapping[str, Any]) -> Kind | None:
    """The kind of an error that a rank reported; None of an ordinary exception."""
    return kind(f"{error['type']}: {error['message']}")


def follows(error: Mapping[str, Any]) -> bool:
    """Whether it only says that another rank is gone."""
    return re.search(FOLLOWS, str(error["message"])) is not None


def last_words(log: Path) -> str:
    """The last line of a rank's log that tells what it died of; empty if none does.

    A library may end the process in the middle (bitsandbytes by ``exit``, NCCL's watchdog by ``abort``) and say why
    nowhere else.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return last_telling(text.splitlines())


def last_telling(lines: Iterable[str]) -> str:
    telling = [line.strip() for line in lines if kind(line) is not None]
    return telling[-1][:LONGEST_LINE] if telling else ""
