"""Stores how long cells took on this machine, so that a plan can estimate the time of a run."""

from __future__ import annotations

import contextlib
import json
import statistics
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

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


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Past durations on one kind of device.

    ``cells`` has the seconds of a cell by case. ``overhead_s`` is the time of a set without its cells: installation,
    imports and test sessions.
    """

    cells: Mapping[str, float]
    overhead_s: float

    def estimate(
        self, work: Work, *, workers: int, repeats: int, limits: Mapping[str, float] = MappingProxyType({})
    ) -> float | None:
        """Estimated seconds of work; None without any past timing.

        A case that never ran counts as the median or, if it is among ``limits``, as the seconds that it may take.
        """
        if not self.cells and not limits:
            return None
        usual = statistics.median(self.cells.values()) if self.cells else 0.0
        bodies = sum(self.cells.get(case.id, limits.get(case.id, usual)) for _, cases in work for case in cases)
        return repeats * (self.overhead_s * len(work) + bodies / workers)


def read(cache: Path, device: str) -> Timings:
    """Past timings; empty if the file is missing or damaged."""
    try:
        known = json.loads((cache / FILE).read_text(encoding="utf-8"))[device]
        return Timings(
            cells={current_case_id(case): float(seconds) for case, seconds in known["cells"].items()},
            overhead_s=float(known["beside_s"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Timings(cells={}, overhead_s=0.0)


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
