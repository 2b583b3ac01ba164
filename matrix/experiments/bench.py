"""Measures the harness: a warm cell against common launchers, the parts of its time, and the time of a whole run.

The ideal wall time of a run is one import of the stack plus the bodies of all cells over the workers without a gap.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cases.flows import stages
from cases.runtime.supervisor import PROFILE
from cases.space.verdict import Verdict
from matrix.environments import disk, leases, provision
from matrix.environments.environment import lease_path
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.experiments import profile
from matrix.experiments.launchers import LAUNCHERS, CellLauncher, Launch, OccupiedError, differs
from matrix.run import plan
from matrix.run.execute import Bench
from matrix.versions import locking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cases.runtime.wire import CellReport
    from cases.space.case import Case
    from matrix.environments.environment import Environment
    from matrix.offline.manifest import Packed
    from matrix.versions.backends import Backend
    from matrix.versions.locks import Lock
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv

RANKS: Final = 2  # of the compared cells
WARM, WARM_SAME = "warm fork", "warm fork, the same cells"


@dataclass(frozen=True, kw_only=True)
class StartMethod:
    """A method to start cells: the median seconds of a cell, and the factor to a warm start of the same cells.

    ``cells_per_minute`` counts the whole run, with its workers, for the harness, and one cell at a time for a launcher.
    """

    name: str
    cells: int
    median_s: float
    cells_per_minute: float
    times: float


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """The results of a benchmark: medians over ``repeats``, in seconds unless a name has another unit.

    ``ways`` are the compared start methods.
    """

    set: str
    hardware: str
    device: str
    facts: Mapping[str, Any]
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
    ranks: int
    ways: tuple[StartMethod, ...]
    launches: tuple[Launch, ...]
    disagreements: tuple[str, ...]
    profile: profile.TimeProfile
    install_warm_cache_s: float | None  # None if the wheels extend the host's torch

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One pass of the harness over all cells: its wall time and the report of each cell that ran."""

    wall_s: float
    rows: tuple[CellReport, ...]
    nccl: Sequence[Mapping[str, float]] = ()

    @property
    def import_s(self) -> float:
        return max(row.server.preload_s if row.server else 0.0 for row in self.rows)

    @property
    def bodies_s(self) -> float:
        return float(sum(row.metrics.get("body_s", row.seconds) for row in self.rows))

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)

    @property
    def seconds(self) -> dict[str, float]:
        return {row.name: row.seconds for row in self.rows}


@dataclass(frozen=True, kw_only=True)
class BenchContext:
    """The set, cases and machine of a benchmark. ``warm_up``: first run a pass that does not count, to fill caches."""

    version_set: VersionSet
    cases: Sequence[Case]
    uv: Uv
    cache: Path
    backend: Backend
    device: str
    workers: int
    hardware: str
    say: Callable[[str], None]
    packed: Packed | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    warm_up: bool = True

    def case(self, name: str) -> Case:
        return next(case for case in self.cases if case.id == name)


def measure(ctx: BenchContext, *, repeats: int, sample: int) -> BenchResult:
    """Measure the harness, then the launchers one cell at a time, in one run on one machine.

    Raises:
        UserError: the set cannot be resolved or installed, no cell ran, or a launcher does not start.
    """
    lock = usable(resolve(ctx))
    environment = usable(install_environment(ctx, lock))
    with tempfile.TemporaryDirectory(prefix="ftmatrix-bench-") as folder:
        try:
            if ctx.warm_up:
                ctx.say("warming up: one pass that does not count")
                harness_pass(ctx, environment, Path(folder, "warm-up"))
            scratches = [Path(folder, f"pass-{number}") for number in range(repeats)]
            passes = [report_pass(ctx, harness_pass(ctx, environment, each)) for each in scratches]
            launches = run_launchers(ctx, environment, scratches[-1], passes[-1], sample)
            installs = [] if ctx.packed else [timed_install(ctx, lock) for _ in range(repeats)]
        finally:
            environment.release()
    return summarise(ctx, passes, launches, installs)


def resolve(ctx: BenchContext) -> Lock | Evidence:
    if ctx.packed is not None:
        return ctx.packed.lock(ctx.version_set)
    return locking.read_or_resolve(ctx.version_set, uv=ctx.uv)


def install_environment(ctx: BenchContext, lock: Lock) -> Environment | Evidence:
    if ctx.packed is not None:
        return ctx.packed.install(lock)
    make_room = lambda: disk.keep_free(ctx.cache, uv=ctx.uv, say=ctx.say)  # noqa: E731 - one expression
    return provision.install(lock, cache=ctx.cache, uv=ctx.uv, backend=ctx.backend, make_room=make_room)


def usable(stage: Lock | Environment | Evidence) -> Any:
    if isinstance(stage, Evidence):
        raise UserError(f"this set cannot be measured: {stage.phase.value}: {stage.reason}")
    return stage


def report_pass(ctx: BenchContext, one: Pass) -> Pass:
    """Report the wall time of a pass; returns the pass."""
    ctx.say(f"harness: {one.wall_s:.1f} s")
    return one


def harness_pass(ctx: BenchContext, environment: Environment, scratch: Path) -> Pass:
    """Run the cells of one set as ``ftmatrix run`` does, without the sample of cold starts.

    Raises:
        UserError: no cell ran.
    """
    logs = scratch / "nccl"
    logs.mkdir(parents=True)
    more = {PROFILE: "1", **(profile.nccl_variables(logs) if ctx.device == "cuda" else {})}
    bench = Bench(scratch=scratch, device=ctx.device, workers=ctx.workers, more=more)
    order = sorted(ctx.cases, key=lambda case: -case.ranks)  # the cells with the most ranks first
    began = time.monotonic()
    rows = tuple(bench.run([case.id for case in order], environment))
    wall_s = time.monotonic() - began
    counted = tuple(row for row in rows if ran(row))
    if not counted:
        why = next((f"{row.name}: {row.reason}" for row in rows), "the test session reported no cell")
        raise UserError(f"no cell ran, so there is nothing to measure: {why}")
    return Pass(wall_s=wall_s, rows=counted, nccl=profile.nccl_timings(logs, RANKS))


def ran(row: CellReport) -> bool:
    """Return whether a cell ran; skipped and lost cells do not count."""
    return row.verdict not in {Verdict.SKIP, Verdict.LOST}


def comparable(ctx: BenchContext, rows: Sequence[CellReport]) -> tuple[str, ...]:
    """The cells of two ranks that a launcher can start and that did not hang; without any, those of other sizes.

    Scripts are left out, because they start their own ranks.
    """
    ending = [row.name for row in rows if row.verdict is not Verdict.HANG]
    able = [name for name in ending if ctx.case(name).options.flow != "script"]
    return tuple(name for name in able if ctx.case(name).ranks == RANKS) or tuple(able)


def run_launchers(ctx: BenchContext, environment: Environment, scratch: Path, last: Pass, sample: int) -> list[Launch]:
    """Run the sample by every launcher, one cell at a time. Cells for which a launcher finds no GPUs are left out."""
    bench = Bench(scratch=scratch, device=ctx.device, workers=1)
    at = CellLauncher(bench=bench, environment=environment)
    launches: list[Launch] = []
    for name in plan.spread(sorted(comparable(ctx, last.rows)), sample):
        try:
            launches += [report_launch(ctx, at.launch(launcher, ctx.case(name))) for launcher in LAUNCHERS]
        except OccupiedError as error:
            ctx.say(f"{name}: not measured: {error}")
    return launches


def report_launch(ctx: BenchContext, one: Launch) -> Launch:
    """Report the result of a launch; returns the launch."""
    ctx.say(f"{one.launcher} {one.case}: {one.seconds:.1f} s, {one.verdict}")
    return one


def timed_install(ctx: BenchContext, lock: Lock) -> float:
    """The seconds to install a second environment of the set from uv's cache, one at a time on a machine."""
    cache = ctx.cache / "bench"
    lease = leases.acquire_exclusive(lease_path(cache))
    try:
        shutil.rmtree(cache, ignore_errors=True)  # of a killed run
        began = time.monotonic()
        environment = usable(provision.install(lock, cache=cache, uv=ctx.uv, backend=ctx.backend))
        seconds = time.monotonic() - began
        environment.release()
    finally:
        shutil.rmtree(cache, ignore_errors=True)
        lease.release()
    ctx.say(f"install: {seconds:.1f} s")
    return seconds


def summarise(
    ctx: BenchContext, passes: Sequence[Pass], launches: Sequence[Launch], installs: Sequence[float]
) -> BenchResult:
    middle = sorted(passes, key=lambda each: each.wall_s)[len(passes) // 2]
    ideal_s = middle.import_s + middle.bodies_s / ctx.workers
    verdicts = {row.name: row.verdict for row in passes[-1].rows}
    compared = set(comparable(ctx, middle.rows))
    ranks = {ctx.case(name).ranks for name in compared}
    return BenchResult(
        set=ctx.version_set.key,
        hardware=ctx.hardware,
        device=ctx.device,
        facts={**ctx.facts, **middle.rows[0].every_fact},
        workers=ctx.workers,
        repeats=len(passes),
        cells=len(middle.cells),
        harness_wall_s=round(middle.wall_s, 2),
        harness_cells_per_minute=round(per_minute(middle), 1),
        import_s=round(middle.import_s, 2),
        bodies_s=round(middle.bodies_s, 2),
        ideal_wall_s=round(ideal_s, 2),
        wall_over_ideal=round(middle.wall_s / ideal_s, 3),
        warm_cell_s=round(statistics.median(middle.seconds.values()), 3),
        ranks=max(ranks, default=0),
        ways=start_methods(middle, passes, compared, launches),
        launches=tuple(launches),
        disagreements=tuple(filter(None, (differs(launch, verdicts[launch.case]) for launch in launches))),
        profile=profile.time_profile(
            [row for each in passes for row in each.rows if has_one_stage(ctx, row, compared)],
            [timing for each in passes for timing in each.nccl],
        ),
        install_warm_cache_s=round(statistics.median(installs), 2) if installs else None,
    )


def has_one_stage(ctx: BenchContext, row: CellReport, compared: set[str]) -> bool:
    """Return whether a cell's ranks are forked only once, so that the parts of their time add up."""
    return row.name in compared and len(stages.numbered_stages(ctx.case(row.name).options)) == 1


def per_minute(one: Pass) -> float:
    return len(one.cells) * 60 / one.wall_s


def start_methods(
    middle: Pass, passes: Sequence[Pass], compared: set[str], launches: Sequence[Launch]
) -> tuple[StartMethod, ...]:
    """The methods to compare: warm forks of all compared cells, warm forks of the sample, and each launcher."""
    warm = {name: statistics.median(each.seconds[name] for each in passes if name in each.seconds) for name in compared}
    if not warm:
        return ()
    same = [warm[name] for name in {launch.case for launch in launches} if name in warm]
    same_s = statistics.median(same or warm.values())
    rate = per_minute(middle)
    methods = [start_method(WARM, list(warm.values()), same_s, rate)]
    if same:
        methods.append(start_method(WARM_SAME, same, same_s, rate))
    for launcher in LAUNCHERS:
        seconds = [launch.seconds for launch in launches if launch.launcher == launcher]
        if seconds:
            methods.append(start_method(launcher, seconds, same_s, 60 / statistics.median(seconds)))
    return tuple(methods)


def start_method(name: str, seconds: Sequence[float], same_s: float, rate: float) -> StartMethod:
    median_s = statistics.median(seconds)
    return StartMethod(
        name=name,
        cells=len(seconds),
        median_s=round(median_s, 3),
        cells_per_minute=round(rate, 2),
        times=round(median_s / same_s, 1),
    )
