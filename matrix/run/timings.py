"""Stores how long cells took on this machine, so that a plan can estimate the time of a run."""

from __future__ import annotations

import contextlib
import json
import statistics
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cases.space import devices
from cases.space.renamed import current_case_id
from matrix.run.store import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cases.space.case import Case
    from matrix.run.outcome import Outcome
    from matrix.versions.sets import VersionSet

    Work = Sequence[tuple[VersionSet, Sequence[Case]]]

FILE: Final = "timings.json"
# Mean seconds of the published cells by device and flow, without the slowest of twenty: on two to eight cores, and on
# H100 and H200.
USUAL_S: Final[Mapping[str, Mapping[str, float]]] = {
    "cpu": {
        "api": 0.7,
        "generate": 2.1,
        "load": 0.3,
        "merge": 1.6,
        "merge_reload": 1.9,
        "portability": 0.6,
        "resume": 2.5,
        "save_reload": 3.1,
        "script": 20.2,
        "train": 1.4,
    },
    "cuda": {
        "api": 3.3,
        "generate": 2.9,
        "load": 1.8,
        "merge": 3.3,
        "merge_reload": 5.2,
        "portability": 3.5,
        "resume": 6.9,
        "save_reload": 4.6,
        "train": 3.6,
    },
}


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Past durations on one kind of device.

    ``cells`` has the seconds of a cell by case. ``overhead_s`` is the time of a set without its cells: installation,
    imports and test sessions.
    """

    cells: Mapping[str, float]
    overhead_s: float
    device: str = "cpu"

    def seconds(self, case: Case) -> float:
        """The seconds of a cell: its last time on this machine, or the usual time of its flow at this machine's speed.

        The speed is the median ratio of the past times to the usual ones of their flows.
        """
        known = self.cells.get(case.id)
        return self.speed * usual_seconds(case.options.flow, self.device) if known is None else known

    @cached_property
    def speed(self) -> float:
        ratios = [seconds / usual_seconds(name.partition("-")[0], self.device) for name, seconds in self.cells.items()]
        return statistics.median(ratios) if ratios else 1.0

    def estimate(
        self, work: Work, *, workers: int, repeats: int, limits: Mapping[str, float] = MappingProxyType({})
    ) -> float | None:
        """Estimated seconds of work; None without any past timing.

        A case that never ran counts as a usual one of its flow or, if it is among ``limits``, as the seconds that it
        may take.
        """
        if not self.cells and not limits:
            return None

        def seconds(case: Case) -> float:
            limited = case.id in limits and case.id not in self.cells
            return limits[case.id] if limited else self.seconds(case)

        bodies = sum(seconds(case) for _, cases in work for case in cases)
        return repeats * (self.overhead_s * len(work) + bodies / workers)


def read(cache: Path, device: str) -> Timings:
    """Past timings; empty if the file is missing or damaged."""
    try:
        known = json.loads((cache / FILE).read_text(encoding="utf-8"))[device]
        return Timings(
            cells={current_case_id(case): float(seconds) for case, seconds in known["cells"].items()},
            overhead_s=float(known["beside_s"]),
            device=device,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Timings(cells={}, overhead_s=0.0, device=device)


def usual_seconds(flow: str, device: str) -> float:
    """The usual time of a cell of a flow; of a training, if the flow was never measured on the device."""
    usual = USUAL_S["cuda" if devices.uses_gpus(device) else "cpu"]
    return usual.get(flow, usual["train"])


def note(cache: Path, device: str, outcomes: Sequence[Outcome], *, wall_s: float, workers: int) -> None:
    """Store the timings of a set that was just measured; those of other devices stay."""
    bodies = sum(outcome.seconds for outcome in outcomes)
    before = read(cache, device)
    cells = {**before.cells, **{outcome.case: outcome.seconds for outcome in outcomes if outcome.seconds}}
    times = max((outcome.repeat for outcome in outcomes), default=1)
    if not bodies:
        return  # nothing ran
    now = {"cells": cells, "beside_s": max(0.0, wall_s - bodies / workers) / times}
    with contextlib.suppress(OSError):  # two runs may write at once; an estimate is not worth failing a run
        others = stored(cache)
        cache.mkdir(parents=True, exist_ok=True)
        write_json(cache / FILE, {**others, device: now})


def stored(cache: Path) -> dict[str, Any]:
    try:
        timings = json.loads((cache / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return timings if isinstance(timings, dict) else {}
