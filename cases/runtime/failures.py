"""The kinds of failure that a report counts, recognised by the text of an error or of a log.

An error that leaves a GPU's context unusable counts as a crash, as a signal does: no later call of the process on that
GPU works, and chance decides which line raises first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.space.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cases.runtime.wire import ErrorReport

LOG_TAIL = 20_000  # bytes
LONGEST_LINE = 300


@dataclass(frozen=True)
class FailureKind:
    """A kind of failure. ``words`` is a pattern for an error's type and message, or for a line of a log."""

    name: str
    verdict: Verdict
    words: str

    def covers(self, text: str) -> bool:
        return re.search(self.words, text) is not None


SIGNAL = "ended by a signal"
SILENT_EXIT = "ended without a report"
HOST_MEMORY = "out of host memory"

# The first match counts. The words of a CUDA error are those of cudaGetErrorString; NCCL passes them on.
KINDS = (
    FailureKind("illegal memory access", Verdict.CRASH, "illegal memory access was encountered"),
    FailureKind("device-side assert", Verdict.CRASH, "device-side assert triggered"),
    FailureKind("misaligned address", Verdict.CRASH, r"(?i)(?:CUDA|Triton).{0,80}misaligned address"),
    FailureKind("illegal instruction", Verdict.CRASH, "an illegal instruction was encountered"),
    FailureKind("launch failure", Verdict.CRASH, "unspecified launch failure|the launch timed out and was terminated"),
    FailureKind(
        "hardware error",
        Verdict.CRASH,
        "uncorrectable (?:ECC|NVLink) error|hardware stack error",
    ),
    FailureKind(
        "out of device memory",
        Verdict.CRASH,
        r"CUDA out of memory|CUDA error: out of memory|Cuda failure \d* ?'out of memory'|CUBLAS_STATUS_ALLOC_FAILED",
    ),
    FailureKind(HOST_MEMORY, Verdict.CRASH, r"DefaultCPUAllocator: |^MemoryError|Cannot allocate memory"),
    FailureKind(
        "NCCL error",
        Verdict.FAIL,
        r"NCCL error|^DistBackendError|\bnccl(?:Invalid|Unhandled|Internal|System|Remote)\w+",
    ),
)

# Errors of a rank that lost another rank: such a rank is not to blame as long as another one may be.
CONSEQUENCES = (
    r"[Cc]onnection (?:was )?(?:closed|reset|refused)|[Bb]roken pipe|remote process exit|ncclRemoteError|"
    r"NCCL communicator was aborted|[Ff]ailed to recv|Socket (?:Timeout|closed)|caused pair closure"
)


def kind_of_text(text: str) -> FailureKind | None:
    return next((each for each in KINDS if each.covers(text)), None)


def kind_of_error(error: ErrorReport) -> FailureKind | None:
    """The kind of an error that a rank reported; None for an ordinary exception."""
    return kind_of_text(f"{error.type}: {error.message}")


def is_consequence(error: ErrorReport) -> bool:
    """Return whether an error only shows that another rank is gone."""
    return re.search(CONSEQUENCES, error.message) is not None


def last_words(log: Path) -> str:
    """The last line of a rank's log that names a kind of failure; empty if there is none.

    A library may end the process (bitsandbytes by ``exit``, NCCL's watchdog by ``abort``) and print the reason nowhere
    else.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return last_match(text.splitlines())


def last_match(lines: Iterable[str]) -> str:
    matching = [line.strip() for line in lines if kind_of_text(line) is not None]
    return matching[-1][:LONGEST_LINE] if matching else ""
