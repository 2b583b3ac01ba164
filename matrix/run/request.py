"""What a user asked for, checked, and a run made ready for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cases import grid
from cases.grid.profiles import Profile, carried
from cases.runtime.wire import Limits
from matrix.environments import disk
from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.experiments import bench as benches
from matrix.keys import CellKey
from matrix.offline import manifest as packs
from matrix.offline import overlay as overlays
from matrix.offline.wheelhouse import Wheelhouse
from matrix.run import machine, pipeline, plan, store, timings
from matrix.run.execute import Suite
from matrix.run.outcome import RunRecord
from matrix.run.progress import Progress, Silent
from matrix.versions import backends, locks, uv
from matrix.versions import sets as known_sets
from matrix.versions.backends import Backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.space.case import Case
    from matrix.offline.manifest import Packed
    from matrix.run.pipeline import Work
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv

DEVICES: Final = ("auto", "cpu", "cuda")
RUNS: Final = Path("runs")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A run as a user asks for it; everything has the default of the plain command."""

    sets: str = ""
    where: str = ""
    profile: str = ""
    device: str = "auto"
    torch_backend: str = "auto"
    out: Path | None = None
    resume: bool = False
    workers: int | None = None
    keep_free_gb: float = disk.BUDGET / disk.GIGABYTE
    cold: bool = False
    cold_sample: int = 1
    repeats: int | None = None
    versions: Path = known_sets.PACKAGED
    offline: Path | None = None
    system_torch: bool = False
    system_python: str = "python3"
    suite: Suite = field(default_factory=Suite)
    limits: Limits = field(default_factory=Limits)

    @property
    def chosen(self) -> Profile:
        """The profile that was named. Without a name: the default one, or every case there is for ``where`` to choose.

        Raises:
            UserError: there is no such profile.
        """
        known = self.suite.profiles
        if self.profile:
            if self.profile not in known:
                raise UserError(f"--profile {self.profile}: there is none of this name; there are {', '.join(known)}")
            mine = grid.commands(self.suite.scripts)
            return replace(known[self.profile], cases=(*known[self.profile].cases, *mine))
        if self.suite.scripts and not self.where:
            return Profile("scripts", "the commands of --scripts", grid.commands(self.suite.scripts))
        if self.where or "default" not in known:
            return Profile("", "what --where leaves of everything", tuple(self.suite.cases.values()))
        return known["default"]

    @cached_property
    def packed(self) -> Packed | None:
        """What --offline names: whole sets, or, with --system-torch, wheels to lay over the host's torch.

        Raises:
            UserError: options that do not go together, or a folder or an interpreter that will not do.
        """
        if self.offline is None:
            if self.system_torch:
                raise UserError(
                    "--system-torch needs --offline: a folder of wheels to lay over the torch that is there"
                )
            return None
        if self.torch_backend not in {"auto", backends.LOCKED}:
            raise UserError(f"--torch-backend {self.torch_backend}: --offline has the one build that was packed")
        cache = cache_folder()
        tool = uv.on_this_machine(cache)
        if self.system_torch:
            return overlays.on_this_host(self.offline, python=self.system_python, cache=cache, uv=tool)
        return Wheelhouse(pack=packs.open_pack(self.offline), cache=cache, uv=tool)

    def backend(self, tool: Uv) -> Backend:
        """The build of torch: what is packed, or the one that is asked for."""
        return chosen_backend(self, tool) if self.packed is None else Backend(name=self.packed.backend)

    @property
    def known(self) -> tuple[VersionSet, ...]:
        """Every set there is to choose from."""
        return known_sets.load(self.versions) if self.packed is None else self.packed.sets

    def version_sets(self) -> tuple[VersionSet, ...]:
        if self.packed is None:
            return known_sets.select(self.known, self.sets or self.chosen.sets)
        there = self.packed.sets
        try:
            found = known_sets.select(there, self.sets or "all")
        except UserError:  # it would point to sets that are not packed
            found = ()
        if not found:  # the groups of the versions file are none of a pack's
            packed = ", ".join(each.key for each in there)
            raise UserError(f"--sets {self.sets}: not, or not all, in --offline; there are {packed}, or all")
        return found

    def cases(self) -> tuple[Case, ...]:
        by_id = {case.id: case for case in self.chosen.cases}
        return plan.select(by_id, plan.where(self.where), asked=self.where)

    @property
    def only_goes_on(self) -> bool:
        """Whether nothing but the rest of an earlier run is asked for."""
        return self.resume and not (self.sets or self.where or self.profile or self.suite.scripts)

    def work(self) -> Work:
        """Every set with its cases; then, if asked, every set with what the others saved."""
        sets, cases = self.version_sets(), self.cases()
        once = [(each, cases) for each in sets]
        begun = [case for case in cases if case.options.flow == "portability"] if self.chosen.across else []
        travelled = tuple(carried(case, source.key) for case in begun for source in sets)
        return [*once, *((each, travelled) for each in sets if travelled)]

    def check(self) -> None:
        """Raise for what no run could be made of.

        Raises:
            UserError: a device, a number of workers or a budget that does not exist.
        """
        if self.device not in DEVICES:
            raise UserError(f"--device {self.device}: expected auto, cpu or cuda")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers {self.workers}: expected a whole number above 0")
        if self.repeats is not None and self.repeats < 1:
            raise UserError(f"--repeat {self.repeats}: expected a whole number above 0")
        if self.device == "cuda" and self.torch_backend == "cpu":
            raise UserError("--torch-backend cpu is a build without CUDA: not with --device cuda")
        if self.keep_free_gb < 0:
            raise UserError(f"--keep-free {self.keep_free_gb}: expected a number of gigabytes, 0 or more")

    @cached_property
    def place(self) -> str:
        """``cpu`` or ``cuda``; ``auto`` is cuda where there is a GPU that may be used."""
        if self.device != "auto":
            return self.device
        return "cpu" if self.why_cpu else "cuda"

    @cached_property
    def why_cpu(self) -> str:
        """Why ``auto`` is the CPU here; empty if it is not."""
        if self.torch_backend == "cpu":
            return "--torch-backend cpu is a build without CUDA"
        return machine.why_no_gpu()

    @property
    def times(self) -> int:
        """How often each cell is run."""
        return self.repeats or self.chosen.repeats

    @property
    def words(self) -> dict[str, str]:
        asked = {"sets": self.sets or self.chosen.sets, "profile": self.chosen.name, "where": self.where}
        return {**asked, "repeats": str(self.times), "device": self.device, "torch_backend": self.torch_backend}


def run(
    asked: Asked,
    *,
    work: Work | None = None,
    watcher: Progress | None = None,
    say: Callable[[str], None] = print,
    when_cut: Callable[[Path], object] = str,
) -> Path:
    """Measure what was asked, or just ``work``; the run's directory.

    ``when_cut`` gets the directory when the run ends early and some cells are finished.

    Raises:
        UserError: bad input, or a machine that cannot do it; nothing half-made is left.
    """
    asked.check()
    work = asked.work() if work is None else work
    workshop = made_ready(asked, work, watcher=watcher or Silent(), say=say)
    kept = workshop.store
    try:
        pipeline.run(work, workshop)
    except (UserError, KeyboardInterrupt) as cut:
        if kept.outcomes:
            when_cut(kept.directory)
        elif isinstance(cut, UserError):
            kept.abandon()
        raise
    finally:
        workshop.watcher.close()
        kept.close()
    return kept.directory


def made_ready(asked: Asked, work: Work, *, watcher: Progress, say: Callable[[str], None]) -> pipeline.Workshop:
    """The workshop of a run, whose store is held until it is closed.

    Raises:
        UserError: a machine that cannot do it, or a directory that cannot be used.
    """
    cache = cache_folder()
    tool = uv.on_this_machine(cache)
    if asked.device == "auto" and asked.place == "cpu":
        say(f"--device auto: cells run on the CPU ({asked.why_cpu})")
    pool = None if asked.place == "cpu" else machine.gpus()
    backend, packed, workers = asked.backend(tool), asked.packed, asked.workers or default_workers(asked.place)
    return pipeline.Workshop(
        store=opened(asked, work),  # the last that may refuse: bad input leaves no directory behind
        uv=tool,
        cache=cache,
        device=asked.place,
        pool=pool,
        backend=backend,
        packed=packed,
        workers=workers,
        keep_free_bytes=int(asked.keep_free_gb * disk.GIGABYTE),
        lock_folder=locks.locks_folder(asked.versions),
        suite=asked.suite,
        limits=asked.limits,
        cold=asked.cold,
        cold_sample=asked.cold_sample,
        repeats=asked.times,
        watcher=watcher,
        say=say,
    )


def chosen_backend(asked: Asked, tool: Uv) -> Backend:
    """With GPUs to run on, never the CPU's build, even where the driver leaves no trace that uv would look for."""
    return backends.choose(asked.torch_backend, uv=tool, gpu=lambda: asked.place == "cuda" or backends.has_gpu())


def size(work: Work, times: int) -> int:
    """Number of cells, each as often as it is run."""
    return sum(len(cases) for _, cases in work) * times


def taken_up(asked: Asked) -> tuple[Asked, Work | None]:
    """What a run that goes on was asked for at its begin, and its work; of any other, what is asked now.

    Raises:
        UserError: there is no such run, or it has cases or sets that there are no more.
    """
    if not asked.only_goes_on:
        return asked, None
    directory = asked.out or store.newest_run(RUNS)
    if not (directory / store.RUN).exists():
        return asked, None  # told when it is opened
    store.held(directory).close()  # whoever is at work there is told first
    record, _, _ = store.read(directory)
    before = replace(
        asked,
        out=directory,
        device=record.device,
        torch_backend=record.asked.get("torch_backend", asked.torch_backend),
        repeats=int(record.asked.get("repeats", 1)),
    )
    return before, planned_work(record, asked)


def planned_work(record: RunRecord, asked: Asked) -> Work:
    """The cells of a run in their order, in which a set may come more than once."""
    known = {each.key: each for each in asked.known}
    cases = asked.suite.cases
    work: list[tuple[VersionSet, list[Case]]] = []
    for cell in record.planned:
        key, name = CellKey.parse(cell)
        try:
            each, case = known[key], cases[name]
        except KeyError:
            raise UserError(
                f"{cell}: that run planned it, and there is no such cell any more: begin a new run"
            ) from None
        if not work or work[-1][0].key != key:
            work.append((each, []))
        work[-1][1].append(case)
    return work


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run would do. ``seconds`` is None where nothing was ever timed on this machine."""

    profile: Profile
    work: Work
    times: int
    seconds: float | None
    left_out: tuple[Case, ...]  # of all cases there are

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.key for each, _ in self.work))

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple({case.id: case for _, cases in self.work for case in cases}.values())

    @property
    def cells(self) -> int:
        return size(self.work, self.times)

    def as_json(self) -> dict[str, Any]:
        rows = [{"case": c.id, "group": c.group, "why": c.why, "options": c.options.stated} for c in self.cases]
        return {
            "profile": self.profile.name,
            "sets": list(self.sets),
            "repeats": self.times,
            "cells": self.cells,
            "seconds": self.seconds,
            "cases": rows,
            "left_out": [case.id for case in self.left_out],
        }


def plan_of(asked: Asked) -> Plan:
    work = asked.work()
    planned = {case.id for _, cases in work for case in cases}
    return Plan(
        profile=asked.chosen,
        work=work,
        times=asked.times,
        seconds=estimated(asked, work),
        left_out=tuple(case for case in asked.suite.cases.values() if case.id not in planned),
    )


def estimated(asked: Asked, work: Work) -> float | None:
    """Seconds by past timings; None where there are none, as on a machine without the GPUs that are planned for."""
    if asked.place == "cuda" and machine.why_no_gpu():
        return None
    workers = asked.workers or default_workers(asked.place)
    past = timings.read(cache_folder(), asked.place)
    return past.estimate(work, workers=workers, repeats=asked.times)


def bench(
    asked: Asked, *, repeats: int, sample: int, say: Callable[[str], None], warm_up: bool = True
) -> benches.BenchResult:
    """Measure the harness on one set, the newest of those asked for.

    Raises:
        UserError: bad input, a set that cannot be installed, or nothing of it that ran.
    """
    asked.check()
    cache = cache_folder()
    tool = uv.on_this_machine(cache)
    ground = benches.BenchContext(
        version_set=max(asked.version_sets(), key=lambda each: each.as_of),
        cases=asked.cases(),
        uv=tool,
        cache=cache,
        backend=asked.backend(tool),
        packed=asked.packed,
        device=asked.place,
        workers=asked.workers or default_workers(asked.place),
        hardware=machine.hardware(asked.place),
        facts=machine.facts(asked.place),
        warm_up=warm_up,
        say=say,
    )
    return benches.measure(ground, repeats=repeats, sample=sample)


def default_workers(device: str) -> int:
    """One worker a core, or a GPU: a cell that needs several waits until they are free."""
    return machine.cores() if device == "cpu" else min(machine.cores(), len(machine.gpus().gpus))


def opened(asked: Asked, work: Work) -> store.Store:
    """The run's directory, new or continued."""
    planned = tuple(str(CellKey(each.key, case.id)) for each, cases in work for case in cases)
    record = RunRecord(
        harness=metadata.version("ftmatrix"),
        code=asked.suite.digest,
        started=datetime.now(UTC),
        device=asked.place,
        asked=asked.words,
        planned=planned,
        hardware=machine.hardware(asked.place),
        facts=dict(machine.facts(asked.place)),
    )
    if not asked.resume:
        directory = asked.out or RUNS / record.started.strftime("%Y-%m-%dT%H-%M-%SZ")
        return store.Store.create(directory, record)
    kept = store.Store.resume(asked.out or store.newest_run(RUNS))
    before = kept.record
    kept.replan(record.model_copy(update={"started": before.started, "planned": merged(before.planned, planned)}))
    return kept


def merged(before: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*before, *now)))
