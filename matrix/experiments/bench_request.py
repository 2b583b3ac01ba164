"""Prepares the measurement of the harness that a run request describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.space import devices
from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.experiments import bench
from matrix.run import machine
from matrix.versions import uv

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.request import RunRequest


def run(
    request: RunRequest, *, repeats: int, sample: int, say: Callable[[str], None], warm_up: bool = True
) -> bench.BenchResult:
    """Measure the harness on one set, the newest that the request selects.

    Raises:
        UserError: bad input, the set cannot be installed, or none of its cells ran.
    """
    request.check()
    if request.device == devices.CUDA_GLOO:
        raise UserError(
            "--device cuda-gloo: bench compares with launchers that give each rank a GPU; choose cpu or cuda"
        )
    cache = cache_folder()
    tool = uv.on_this_machine(cache)
    ctx = bench.BenchContext(
        version_set=max(request.version_sets(), key=lambda each: each.as_of),
        cases=request.cases(),
        uv=tool,
        cache=cache,
        backend=request.backend(tool),
        packed=request.packed,
        device=request.resolved_device,
        workers=request.worker_count,
        hardware=machine.hardware(request.resolved_device),
        facts=machine.facts(request.resolved_device),
        warm_up=warm_up,
        say=say,
    )
    return bench.measure(ctx, repeats=repeats, sample=sample)
