"""Plans a run: lists its cells, estimates their time, and lists the cases that the run leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases import grid
from cases.space import devices
from matrix.environments.environment import cache_folder
from matrix.run import machine, timings
from matrix.run.request import default_workers

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cases.grid.profiles import Profile
    from cases.space.case import Case
    from matrix.run.request import RunRequest
    from matrix.run.timings import Timings, Work


def cell_count(work: Work, repeats: int) -> int:
    """The number of cells, repeats included."""
    return sum(len(cases) for _, cases in work) * repeats


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The cells of a request before they run. ``seconds`` is None without past timings on this machine.

    ``untimed`` has the time limit, in seconds, of each script that never ran here; the estimate counts it.
    """

    profile: Profile
    work: Work
    repeats: int
    seconds: float | None
    left_out: tuple[Case, ...]  # cases that are not in the run
    untimed: Mapping[str, float] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.key for each, _ in self.work))

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple({case.id: case for _, cases in self.work for case in cases}.values())

    @property
    def cells(self) -> int:
        return cell_count(self.work, self.repeats)

    def as_json(self) -> dict[str, Any]:
        rows = [{"case": c.id, "group": c.group, "why": c.why, "options": c.options.stated} for c in self.cases]
        return {
            "profile": self.profile.name,
            "sets": list(self.sets),
            "repeats": self.repeats,
            "cells": self.cells,
            "seconds": self.seconds,
            "untimed": dict(self.untimed),
            "cases": rows,
            "left_out": [case.id for case in self.left_out],
        }


def plan_of(request: RunRequest, work: Work | None = None) -> RunPlan:
    """The plan of a run of all the request's work, or just of ``work``.

    Raises:
        UserError: the request names sets or cases that do not exist.
    """
    requested = request.work()
    work = requested if work is None else work
    planned = {case.id for _, cases in requested for case in cases}
    past = past_timings(request)
    untimed = untimed_scripts(request, planned - past.cells.keys()) if past else {}
    workers = request.workers or default_workers(request.resolved_device) if past else 1
    return RunPlan(
        profile=request.chosen_profile,
        work=work,
        repeats=request.repeat_count,
        seconds=past.estimate(work, workers=workers, repeats=request.repeat_count, limits=untimed) if past else None,
        left_out=tuple(case for case in request.suite.cases.values() if case.id not in planned),
        untimed=untimed,
    )


def past_timings(request: RunRequest) -> Timings | None:
    """Past timings; None for a plan for GPUs on a machine without any."""
    if devices.uses_gpus(request.resolved_device) and machine.why_no_gpu():
        return None
    return timings.read(cache_folder(), request.resolved_device)


def untimed_scripts(request: RunRequest, cases: Collection[str]) -> dict[str, float]:
    """The time limits of the scripts among some cases."""
    limits = {case.id: script.timeout_s for script in request.suite.scripts for case in grid.commands([script])}
    return {case: limit for case, limit in limits.items() if case in cases}
