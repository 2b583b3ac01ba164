"""Measures the harness itself: cells a minute against ``torchrun``, wall time against the ideal, install time.

The ideal wall time is one import of the stack plus the bodies of all cells spread over the workers without a gap.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cases.verdict import Verdict
from matrix import disk, environments, locks, processes
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.execute import Bench, Suite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.case import Case
    from matrix.backends import Backend
    from matrix.environments import Environment
    from matrix.locks import Lock
    from matrix.sets import VersionSet
    from matrix.uv import Uv

TORCHRUN_LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds, unless the name says otherwise; medians over ``repeats``, ``torchrun_cell_s`` over the sampled cells."""

    set: str
    hardware: str
    workers: int
    repeats: int
    cells: int
    harness_wall_s: float
    harness_cells_per_minute: float
    import_s: float
    bodies_s: float
    ideal_wall_s: float
    wall_over_ideal: float
    warm_cell_s: float
    torchrun_sample: tuple[str, ...]
    torchrun_cell_s: float
    torchrun_cells_per_minute: float
    times_torchrun: float
    install_warm_cache_s: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One pass of the harness over all cells."""

    wall_s: float
    import_s: float
    bodies_s: float
    cells: tuple[str, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What is measured on."""

    version_set: VersionSet
    cases: Sequence[Case]
    uv: Uv
    cache: Path
    backend: Backend
    device: str
    workers: int
    hardware: str
    say: Callable[[str], None]


def measure(ground: Ground, *, repeats: int, sample: int) -> Measured:
    """Everything, in one run on one machine.

    Raises:
        UserError: the set cannot be resolved or installed.
    """
    lock = usable(locks.read_or_make(ground.version_set, uv=ground.uv))
    make_room = lambda: disk.keep_free(ground.cache, uv=ground.uv, say=ground.say)  # noqa: E731 - one expression
    environment = usable(
        environments.install(lock, cache=ground.cache, uv=ground.uv, backend=ground.backend, make_room=make_room)
    )
    try:
        ground.say("warming up: one pass that does not count")
        harness_pass(ground, environment)
        passes = [told(ground, "harness", harness_pass(ground, environment)) for _ in range(repeats)]
        chosen = spread(passes[0].cells, sample)
        alone = [told(ground, f"torchrun {cell}", torchrun(ground, environment, cell)) for cell in chosen]
        installs = [told(ground, "install", install(ground, lock)) for _ in range(repeats)]
    finally:
        environment.release()
    return summed(ground, passes, chosen, alone, installs)


def usable(stage: Lock | Environment | Evidence) -> Any:
    if isinstance(stage, Evidence):
        raise UserError(f"this set cannot be measured: {stage.phase.value}: {stage.reason}")
    return stage


def told(ground: Ground, what: str, value: Any) -> Any:
    seconds = value.wall_s if isinstance(value, Pass) else value
    ground.say(f"{what}: {seconds:.1f} s")
    return value


def harness_pass(ground: Ground, environment: Environment) -> Pass:
    """What ``run`` does with the cells of one set, without the sample of cold starts."""
    with tempfile.TemporaryDirectory(prefix="ftmatrix-bench-") as folder:
        bench = Bench(scratch=Path(folder), device=ground.device, workers=ground.workers)
        began = time.monotonic()
        raw = [row for row in bench.run([case.id for case in ground.cases], environment) if ran(row)]
        wall_s = time.monotonic() - began
    return Pass(
        wall_s=wall_s,
        import_s=max(row["facts"]["preload_s"] for row in raw),
        bodies_s=sum(row["metrics"].get("body_s", row["seconds"]) for row in raw),
        cells=tuple(row["name"] for row in raw),
        seconds=tuple(row["seconds"] for row in raw),
    )


def ran(row: dict[str, Any]) -> bool:
    """Skipped cells cost nothing and count for nothing."""
    return row["verdict"] not in {Verdict.SKIP.value, Verdict.LOST.value}


def spread(cells: Sequence[str], count: int) -> tuple[str, ...]:
    """Evenly spaced over all of them, so that every kind is in the sample in its proportion."""
    ordered = sorted(cells)
    step = max(1, len(ordered) // max(1, count))
    return tuple(ordered[::step][:count])


def torchrun(ground: Ground, environment: Environment, cell: str) -> float:
    """The same cell, in the same environment, started as people start it; a red cell ends with its own exit code."""
    ranks = next(case.ranks for case in ground.cases if case.id == cell)
    with tempfile.TemporaryDirectory(prefix="ftmatrix-bench-") as folder:
        Suite().copy(Path(folder))
        bench = Bench(scratch=Path(folder), device=ground.device, workers=1)
        began = time.monotonic()
        done = processes.call(
            [
                *(str(environment.python), "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node", str(ranks), "-m", "cases.alone", cell),
            ],
            timeout_s=TORCHRUN_LIMIT_S,
            env={**bench.variables(environment), "FTMATRIX_DEVICE": ground.device, "OMP_NUM_THREADS": "1"},
            cwd=Path(folder),
        )
        seconds = time.monotonic() - began
    if done.exit_code is None or "load" not in done.log:
        raise UserError(f"torchrun did not run {cell}: {done.log.strip().splitlines()[-1:]}")
    return seconds


def install(ground: Ground, lock: Lock) -> float:
    """A new environment of the set from uv's cache, beside the one that is kept."""
    elsewhere = ground.cache / "bench"
    shutil.rmtree(elsewhere, ignore_errors=True)
    began = time.monotonic()
    made = usable(environments.install(lock, cache=elsewhere, uv=ground.uv, backend=ground.backend))
    seconds = time.monotonic() - began
    made.release()
    shutil.rmtree(elsewhere, ignore_errors=True)
    return seconds


def summed(
    ground: Ground, passes: Sequence[Pass], chosen: tuple[str, ...], alone: Sequence[float], installs: Sequence[float]
) -> Measured:
    middle = sorted(passes, key=lambda each: each.wall_s)[len(passes) // 2]
    ideal_s = middle.import_s + middle.bodies_s / ground.workers
    per_minute = len(middle.cells) * 60 / middle.wall_s
    torchrun_s = statistics.median(alone)
    return Measured(
        set=ground.version_set.key,
        hardware=ground.hardware,
        workers=ground.workers,
        repeats=len(passes),
        cells=len(middle.cells),
        harness_wall_s=round(middle.wall_s, 2),
        harness_cells_per_minute=round(per_minute, 1),
        import_s=round(middle.import_s, 2),
        bodies_s=round(middle.bodies_s, 2),
        ideal_wall_s=round(ideal_s, 2),
        wall_over_ideal=round(middle.wall_s / ideal_s, 3),
        warm_cell_s=round(statistics.median(middle.seconds), 3),
        torchrun_sample=chosen,
        torchrun_cell_s=round(torchrun_s, 2),
        torchrun_cells_per_minute=round(60 / torchrun_s, 2),
        times_torchrun=round(per_minute * torchrun_s / 60, 1),
        install_warm_cache_s=round(statistics.median(installs), 2),
    )


def lines(found: Measured) -> Iterator[str]:
    """For people."""
    yield f"{found.set} on {found.hardware}, {found.workers} workers, medians of {found.repeats}"
    yield f"harness: {found.cells} cells in {found.harness_wall_s} s, {found.harness_cells_per_minute} cells a minute"
    yield (
        f"torchrun: {found.torchrun_cell_s} s a cell, {found.torchrun_cells_per_minute} cells a minute"
        f" (median of {len(found.torchrun_sample)} of the same cells)"
    )
    yield f"ratio: {found.times_torchrun} times the cells a minute"
    yield (
        f"wall time over the ideal: {found.wall_over_ideal} ({found.harness_wall_s} s over {found.ideal_wall_s} s ="
        f" one import {found.import_s} s + bodies {found.bodies_s} s / {found.workers} workers)"
    )
    yield f"install from a warm cache: {found.install_warm_cache_s} s"
