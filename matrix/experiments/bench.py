"""Measures the harness itself: a warm cell against the launchers people use, where its time goes, the whole run's.

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
from matrix.experiments.launchers import LAUNCHERS, Launch, OccupiedError, differs
from matrix.experiments.launchers import Ground as LaunchGround
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

RANKS: Final = 2  # of the cells that are compared
WARM, WARM_SAME = "warm fork", "warm fork, the same cells"


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of starting cells: the median seconds of one, and how many times the warm one's of the same cells.

    ``cells_per_minute`` is of the whole run for the harness, with its workers; of a launcher, one cell after the other.
    """

    name: str
    cells: int
    median_s: float
    cells_per_minute: float
    times: float


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Seconds, unless the name says otherwise; medians over ``repeats``."""

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
    ways: tuple[Way, ...]
    launches: tuple[Launch, ...]
    disagreements: tuple[str, ...]
    profile: profile.Profile
    install_warm_cache_s: float | None  # not measured where wheels are laid over a host's torch

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One pass of the harness over all cells: its wall time, and the raw outcome of each cell that ran."""

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
class Ground:
    """What is measured on. ``warm_up``: one pass before those that count, which fills the caches of files."""

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


def measure(ground: Ground, *, repeats: int, sample: int) -> Measured:
    """Everything, in one run on one machine: first the harness, then the launchers, one cell after the other.

    Raises:
        UserError: the set cannot be resolved or installed, no cell ran, or a launcher does not start.
    """
    lock = usable(locked(ground))
    environment = usable(installed(ground, lock))
    with tempfile.TemporaryDirectory(prefix="ftmatrix-bench-") as folder:
        try:
            if ground.warm_up:
                ground.say("warming up: one pass that does not count")
                harness_pass(ground, environment, Path(folder, "warm-up"))
            scratches = [Path(folder, f"pass-{number}") for number in range(repeats)]
            passes = [told(ground, harness_pass(ground, environment, each)) for each in scratches]
            launches = launched(ground, environment, scratches[-1], passes[-1], sample)
            installs = [] if ground.packed else [install(ground, lock) for _ in range(repeats)]
        finally:
            environment.release()
    return summed(ground, passes, launches, installs)


def locked(ground: Ground) -> Lock | Evidence:
    if ground.packed is not None:
        return ground.packed.lock(ground.version_set)
    return locking.read_or_resolve(ground.version_set, uv=ground.uv)


def installed(ground: Ground, lock: Lock) -> Environment | Evidence:
    if ground.packed is not None:
        return ground.packed.install(lock)
    make_room = lambda: disk.keep_free(ground.cache, uv=ground.uv, say=ground.say)  # noqa: E731 - one expression
    return provision.install(lock, cache=ground.cache, uv=ground.uv, backend=ground.backend, make_room=make_room)


def usable(stage: Lock | Environment | Evidence) -> Any:
    if isinstance(stage, Evidence):
        raise UserError(f"this set cannot be measured: {stage.phase.value}: {stage.reason}")
    return stage


def told(ground: Ground, one: Pass) -> Pass:
    ground.say(f"harness: {one.wall_s:.1f} s")
    return one


def harness_pass(ground: Ground, environment: Environment, scratch: Path) -> Pass:
    """What ``run`` does with the cells of one set, without the sample of cold starts.

    Raises:
        UserError: no cell ran.
    """
    logs = scratch / "nccl"
    logs.mkdir(parents=True)
    more = {PROFILE: "1", **(profile.nccl_variables(logs) if ground.device == "cuda" else {})}
    bench = Bench(scratch=scratch, device=ground.device, workers=ground.workers, more=more)
    order = sorted(ground.cases, key=lambda case: -case.ranks)  # those that need most GPUs first
    began = time.monotonic()
    rows = tuple(bench.run([case.id for case in order], environment))
    wall_s = time.monotonic() - began
    counted = tuple(row for row in rows if ran(row))
    if not counted:
        why = next((f"{row.name}: {row.reason}" for row in rows), "the tests said nothing")
        raise UserError(f"no cell ran, so there is nothing to measure: {why}")
    return Pass(wall_s=wall_s, rows=counted, nccl=profile.nccl_timings(logs, RANKS))


def ran(row: CellReport) -> bool:
    """Skipped cells cost nothing and count for nothing."""
    return row.verdict not in {Verdict.SKIP, Verdict.LOST}


def comparable(ground: Ground, rows: Sequence[CellReport]) -> tuple[str, ...]:
    """The cells of two ranks that a launcher can start and that end by themselves; where there are none, all that do.

    A script starts its own ranks.
    """
    ending = [row.name for row in rows if row.verdict is not Verdict.HANG]
    able = [name for name in ending if ground.case(name).options.flow != "script"]
    return tuple(name for name in able if ground.case(name).ranks == RANKS) or tuple(able)


def launched(ground: Ground, environment: Environment, scratch: Path, last: Pass, sample: int) -> list[Launch]:
    """The sample by every launcher, one cell after the other; a cell that lacks GPUs for one counts for none."""
    bench = Bench(scratch=scratch, device=ground.device, workers=1)
    at = LaunchGround(bench=bench, environment=environment)
    found: list[Launch] = []
    for name in plan.spread(sorted(comparable(ground, last.rows)), sample):
        try:
            found += [told_of(ground, at.launch(launcher, ground.case(name))) for launcher in LAUNCHERS]
        except OccupiedError as none:
            ground.say(f"{name}: not measured: {none}")
    return found


def told_of(ground: Ground, one: Launch) -> Launch:
    ground.say(f"{one.launcher} {one.case}: {one.seconds:.1f} s, {one.verdict}")
    return one


def install(ground: Ground, lock: Lock) -> float:
    """A new environment of the set from uv's cache, beside the one that is kept; one at a time on a machine."""
    elsewhere = ground.cache / "bench"
    lease = leases.acquire_exclusive(lease_path(elsewhere))
    try:
        shutil.rmtree(elsewhere, ignore_errors=True)  # what one that was killed left
        began = time.monotonic()
        made = usable(provision.install(lock, cache=elsewhere, uv=ground.uv, backend=ground.backend))
        seconds = time.monotonic() - began
        made.release()
    finally:
        shutil.rmtree(elsewhere, ignore_errors=True)
        lease.release()
    ground.say(f"install: {seconds:.1f} s")
    return seconds


def summed(ground: Ground, passes: Sequence[Pass], launches: Sequence[Launch], installs: Sequence[float]) -> Measured:
    middle = sorted(passes, key=lambda each: each.wall_s)[len(passes) // 2]
    ideal_s = middle.import_s + middle.bodies_s / ground.workers
    verdicts = {row.name: row.verdict for row in passes[-1].rows}
    compared = set(comparable(ground, middle.rows))
    ranks = {ground.case(name).ranks for name in compared}
    return Measured(
        set=ground.version_set.key,
        hardware=ground.hardware,
        device=ground.device,
        facts={**ground.facts, **middle.rows[0].every_fact},
        workers=ground.workers,
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
        ways=ways(middle, passes, compared, launches),
        launches=tuple(launches),
        disagreements=tuple(filter(None, (differs(launch, verdicts[launch.case]) for launch in launches))),
        profile=profile.of(
            [row for each in passes for row in each.rows if of_one_act(ground, row, compared)],
            [timing for each in passes for timing in each.nccl],
        ),
        install_warm_cache_s=round(statistics.median(installs), 2) if installs else None,
    )


def of_one_act(ground: Ground, row: CellReport, compared: set[str]) -> bool:
    """A cell whose ranks are forked once, so that parts of their time add up."""
    return row.name in compared and len(stages.numbered_stages(ground.case(row.name).options)) == 1


def per_minute(one: Pass) -> float:
    return len(one.cells) * 60 / one.wall_s


def ways(middle: Pass, passes: Sequence[Pass], compared: set[str], launches: Sequence[Launch]) -> tuple[Way, ...]:
    """Side by side: all compared cells by warm forks, those of the sample by warm forks, and by each launcher."""
    warm = {name: statistics.median(each.seconds[name] for each in passes if name in each.seconds) for name in compared}
    if not warm:
        return ()
    same = [warm[name] for name in {launch.case for launch in launches} if name in warm]
    same_s = statistics.median(same or warm.values())
    rate = per_minute(middle)
    found = [way(WARM, list(warm.values()), same_s, rate)]
    if same:
        found.append(way(WARM_SAME, same, same_s, rate))
    for launcher in LAUNCHERS:
        seconds = [launch.seconds for launch in launches if launch.launcher == launcher]
        if seconds:
            found.append(way(launcher, seconds, same_s, 60 / statistics.median(seconds)))
    return tuple(found)


def way(name: str, seconds: Sequence[float], same_s: float, rate: float) -> Way:
    median_s = statistics.median(seconds)
    return Way(
        name=name,
        cells=len(seconds),
        median_s=round(median_s, 3),
        cells_per_minute=round(rate, 2),
        times=round(median_s / same_s, 1),
    )
