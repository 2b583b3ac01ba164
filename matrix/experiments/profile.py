"""Divides the time of a warm cell into parts, from the metrics of its ranks and supervisor and from NCCL's log."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from cases.runtime.wire import CellReport

# Each part and the metrics that add up to it, in chronological order. A metric is that of the slowest rank.
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "fork": ("start_s",),
    "remaining imports": ("import_s",),
    "CUDA context": ("context_s",),
    "process group": ("group_s",),
    "checkpoint and model": ("load_s",),
    "adapter": ("adapt_s",),
    "wrap": ("wrap_s",),
    "first step": ("first_forward_s", "first_backward_s", "first_optimizer_s"),
    "later steps": ("forward_s", "backward_s", "optimizer_s"),
    "inference": ("infer_s",),
    "save, reload, merge": ("save_s", "reload_s", "resume_s", "merge_s"),
    "wait for the reference": ("reference_s",),
    "judging": ("judging_s",),
    "leaving the process group": ("leaving_s",),
    "end of the ranks": ("ending_s",),
    "end of the supervisor": ("closing_s",),
}
OUTSIDE_THE_CELL: Final[Mapping[str, tuple[str, ...]]] = {  # not included in a cell's time
    "wait for free GPUs": ("gpus_wait_s",),
    "freeing the GPUs afterwards": ("gpus_settle_s",),
}
REST: Final = "unattributed, minus overlap between ranks"
TIMINGS: Final = re.compile(
    r"Init timings - \w+: rank \d+ nranks (?P<ranks>\d+) total (?P<total>[\d.]+) \((?P<of>[^)]*)\)"
)


@dataclass(frozen=True, kw_only=True)
class TimeProfile:
    """Median seconds of each part over the cells; ``beside`` has the parts before and after a cell.

    ``nccl_s`` is the median of the times that NCCL logs for creating a communicator, which the part with the first
    collective includes; empty if NCCL logs none. ``late`` counts, by module, the cells whose ranks had to import it
    because the fork server had not.
    """

    cells: int
    parts: Mapping[str, float]
    beside: Mapping[str, float]
    nccl_s: Mapping[str, float]
    late: Mapping[str, int] = field(default_factory=dict)


def time_profile(rows: Sequence[CellReport], nccl: Sequence[Mapping[str, float]]) -> TimeProfile:
    """The profile of cells whose ranks were forked once."""
    parts_of_rows = [{part: metric_sum(row, names) for part, names in PARTS.items()} for row in rows]
    for row, parts in zip(rows, parts_of_rows, strict=True):
        parts["later steps"] -= parts["first step"]
        parts[REST] = row.seconds - sum(parts.values())
    beside = [{part: metric_sum(row, names) for part, names in OUTSIDE_THE_CELL.items()} for row in rows]
    late = Counter(module for row in rows for module in outermost(row.late_modules))
    return TimeProfile(
        cells=len(rows),
        parts=medians(parts_of_rows),
        beside=medians(beside),
        nccl_s=medians(nccl),
        late=dict(late.most_common()),
    )


def outermost(modules: Sequence[str]) -> list[str]:
    """The modules whose package is not in the list."""
    return [name for name in modules if not any(name.startswith(f"{other}.") for other in modules)]


def metric_sum(row: CellReport, names: Sequence[str]) -> float:
    return float(sum(row.metrics.get(name, 0.0) for name in names))


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: round(statistics.median(row.get(name, 0.0) for row in rows), 4) for name in names}


def nccl_variables(folder: Path) -> dict[str, str]:
    """Environment variables that make each process log the start of NCCL to a file in the folder."""
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV", "NCCL_DEBUG_FILE": str(folder / "%p.log")}


def nccl_timings(folder: Path, ranks: int) -> list[dict[str, float]]:
    """The seconds that NCCL (since 2.19) logs for creating each communicator of so many ranks."""
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.log")))
    return [timing for text in texts for timing in timings(text, ranks)]


def timings(text: str, ranks: int) -> Iterator[dict[str, float]]:
    for match in TIMINGS.finditer(text):
        if int(match["ranks"]) == ranks:
            words = (part.split() for part in match["of"].split(","))
            yield {"total": float(match["total"]), **{name: float(seconds) for name, seconds in words}}
