"""Checks the request for a run, and prepares and starts the run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cases import grid
from cases.grid.profiles import Profile, carried
from cases.runtime.wire import Limits
from cases.space import devices
from matrix.environments import disk
from matrix.environments.environment import cache_folder
from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.offline import manifest as packs
from matrix.offline import overlay as overlays
from matrix.offline.wheelhouse import Wheelhouse
from matrix.replacements.replaced_sets import ReplacedSets
from matrix.replacements.source import parsed
from matrix.run import digest_cache, location, machine, pipeline, plan, store
from matrix.run.context import RunContext
from matrix.run.evidence_files import home_folder, without_user
from matrix.run.execute import Suite
from matrix.run.outcome import RunRecord
from matrix.run.progress import Progress, Silent
from matrix.versions import backends, locks, uv
from matrix.versions import sets as known_sets
from matrix.versions.backends import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cases.space.case import Case
    from matrix.offline.manifest import Packed
    from matrix.run.timings import Work
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv

BOTH: Final = "both"  # see matrix.run.both
DEVICES: Final = ("auto", *devices.NAMES)
RUNS: Final = Path("runs")


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The options of a run. Each has the default of ``ftmatrix run``."""

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
    locate: str = "none"  # one of location.CHOICES
    versions: Path = known_sets.PACKAGED
    offline: Path | None = None
    system_torch: bool = False
    system_python: str = "python3"
    afterwards: Callable[[RunContext], None] | None = field(default=None, repr=False)  # with what the run prepared
    suite: Suite = field(default_factory=Suite)
    limits: Limits = field(default_factory=Limits)
    variables: Mapping[str, str] = field(default_factory=dict)  # further ones of the environment of ranks
    replacements: tuple[str, ...] = ()  # the words of --with
    resolved: ReplacedSets | None = None  # the same, built already: a checkout may change during a run

    @property
    def chosen_profile(self) -> Profile:
        """The named profile. Without a name: the default profile, or every case if ``where`` selects cases.

        Raises:
            UserError: there is no such profile.
        """
        known = self.suite.profiles
        if self.profile:
            if self.profile not in known:
                raise UserError(f"unknown profile {self.profile!r}; choose from {', '.join(known)}")
            mine = grid.commands(self.suite.scripts)
            return replace(known[self.profile], cases=(*known[self.profile].cases, *mine))
        if self.suite.scripts and not self.where:
            return Profile("scripts", "commands of --scripts", grid.commands(self.suite.scripts))
        if self.where or "default" not in known:
            return Profile("", "all cases that --where selects", tuple(self.suite.cases.values()))
        return known["default"]

    @cached_property
    def packed(self) -> Packed | None:
        """The packed sets of ``--offline``, or, with ``--system-torch``, packed wheels on top of the host's torch.

        Raises:
            UserError: options contradict each other, or the folder or the interpreter cannot be used.
        """
        if self.offline is None:
            if self.system_torch:
                raise UserError(
                    "--system-torch needs wheels to add to the host's torch; name their folder by --offline"
                )
            return None
        if self.torch_backend not in {"auto", backends.LOCKED}:
            raise UserError(
                f"--torch-backend {self.torch_backend}: --offline has one packed build; leave --torch-backend out"
            )
        cache = cache_folder()
        tool = uv.on_this_machine(cache)
        if self.system_torch:
            return overlays.on_this_host(self.offline, python=self.system_python, cache=cache, uv=tool)
        return Wheelhouse(pack=packs.open_pack(self.offline), cache=cache, uv=tool)

    def backend(self, tool: Uv) -> Backend:
        """The build of torch: the packed one, or that of ``--torch-backend``."""
        return chosen_backend(self, tool) if self.packed is None else Backend(name=self.packed.backend)

    @property
    def known(self) -> tuple[VersionSet, ...]:
        """Every set that the request can select from."""
        return known_sets.load(self.versions) if self.packed is None else self.packed.sets

    @cached_property
    def replaced(self) -> ReplacedSets | None:
        """Every known set with the packages of ``--with``, which are fetched and built at their first use.

        Raises:
            UserError: a word of ``--with`` is malformed.
        """
        if self.resolved is not None or not self.replacements:
            return self.resolved
        cache = cache_folder()
        return ReplacedSets(
            sources=parsed(self.replacements),
            originals=self.known,
            cache=cache,
            uv=uv.on_this_machine(cache),
            lock_folder=locks.locks_folder(self.versions),
        )

    def version_sets(self) -> tuple[VersionSet, ...]:
        if self.replaced is not None:
            originals = known_sets.select(self.known, self.sets or self.chosen_profile.sets)
            return tuple(map(self.replaced.version_set, originals))
        if self.packed is None:
            return known_sets.select(self.known, self.sets or self.chosen_profile.sets)
        try:
            selected = known_sets.select(self.packed.sets, self.sets or "all")
        except UserError:  # its message would suggest sets that are not packed
            selected = ()
        if not selected:  # a pack does not have the groups of the versions file
            packed = ", ".join(each.key for each in self.packed.sets)
            raise UserError(f"--sets {self.sets}: --offline does not have all of them; choose from {packed}, or all")
        return selected

    def cases(self) -> tuple[Case, ...]:
        by_id = {case.id: case for case in self.chosen_profile.cases}
        return plan.select(by_id, plan.where(self.where), text=self.where)

    @property
    def only_resumes(self) -> bool:
        """Return whether the request names nothing but the run to resume."""
        return self.resume and not (self.sets or self.where or self.profile or self.suite.scripts or self.replacements)

    def work(self) -> Work:
        """Every set with its cases. If the profile crosses sets, each set then loads what every set saved."""
        sets, cases = self.version_sets(), self.cases()
        once = [(each, cases) for each in sets]
        portability_cases = (
            [case for case in cases if case.options.flow == "portability"] if self.chosen_profile.across else []
        )
        portability_work = tuple(carried(case, source.key) for case in portability_cases for source in sets)
        return [*once, *((each, portability_work) for each in sets if portability_work)]

    def check(self) -> None:
        """Check options that would make a run impossible.

        Raises:
            UserError: an option has a value outside its range.
        """
        if self.device == BOTH:
            raise UserError("--device both: only run and plan take it; choose auto, cpu, cuda or cuda-gloo")
        if self.device not in DEVICES:
            raise UserError(f"--device {self.device}: expected auto, cpu, cuda or cuda-gloo; run also takes both")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers {self.workers}: expected a whole number above 0")
        if self.repeats is not None and self.repeats < 1:
            raise UserError(f"--repeat {self.repeats}: expected a whole number above 0")
        if self.device in (devices.CUDA, devices.CUDA_GLOO) and self.torch_backend == "cpu":
            raise UserError(
                f"--torch-backend cpu is a build without CUDA; choose another one for --device {self.device}"
            )
        if self.locate not in location.CHOICES:
            raise UserError(f"--locate {self.locate}: expected {', '.join(location.CHOICES)}")
        script = next((each for each in self.suite.scripts if each.dependencies and self.offline is not None), None)
        if script is not None:
            raise UserError(f"{script.source}: dependencies need a package index; leave --offline or dependencies out")
        if self.replacements and self.offline is not None:
            raise UserError("--with builds and installs with a package index; leave --offline out")
        if self.keep_free_gb < 0:
            raise UserError(f"--keep-free {self.keep_free_gb}: expected a number of gigabytes, 0 or more")

    @cached_property
    def resolved_device(self) -> str:
        """The name of a device; ``auto`` means cuda if this process may use a GPU."""
        if self.device != "auto":
            return self.device
        return devices.CPU if self.why_cpu else devices.CUDA

    @cached_property
    def why_cpu(self) -> str:
        """The reason why ``auto`` means the CPU on this machine; empty if it means cuda."""
        if self.torch_backend == "cpu":
            return "--torch-backend cpu is a build without CUDA"
        return machine.why_no_gpu()

    @property
    def worker_count(self) -> int:
        """The number of cells that run at once."""
        return self.workers or default_workers(self.resolved_device)

    @property
    def repeat_count(self) -> int:
        """The number of times each cell runs."""
        return self.repeats or self.chosen_profile.repeats

    @property
    def as_words(self) -> dict[str, str]:
        selection = {
            "sets": self.sets or self.chosen_profile.sets,
            "profile": self.chosen_profile.name,
            "where": self.where,
        }
        laid_over = {}
        if self.replaced is not None:
            words = json.dumps([each.public_word for each in self.replaced.pinned])
            laid_over = {"with": without_user(words, home=home_folder(), user="")}
        build = {"device": self.device, "torch_backend": self.torch_backend}
        return {**selection, "repeats": str(self.repeat_count), **build, **laid_over}


def run(
    request: RunRequest,
    *,
    work: Work | None = None,
    watcher: Progress | None = None,
    say: Callable[[str], None] = print,
    on_interruption: Callable[[Path], object] = str,
) -> Path:
    """Measure the cells of a request, or just ``work``; return the run's directory. See ``run_all``."""
    (directory,) = run_all([(request, work)], watcher=watcher, say=say, on_interruption=on_interruption)
    return directory


def run_all(
    parts: Sequence[tuple[RunRequest, Work | None]],
    *,
    watcher: Progress | None = None,
    say: Callable[[str], None] = print,
    on_interruption: Callable[[Path], object] = str,
) -> tuple[Path, ...]:
    """Measure requests one after the other; return their directories.

    Every directory exists before the first cell runs, so that ``--resume`` continues all of them.
    ``on_interruption`` receives each directory with finished cells if a run ends early.

    Raises:
        UserError: bad input, or the machine cannot run a request; runs are removed if no cell finished.
    """
    watcher = watcher or Silent()
    began: list[tuple[RunContext, Work, RunRequest]] = []
    try:
        for request, work in parts:
            request.check()
            whole = request.work() if work is None else work
            began.append((prepare_context(request, whole, watcher=watcher, say=say), whole, request))
        for ctx, work, request in began:
            pipeline.run(work, ctx)
            location.run(work, request.locate, ctx)
            if request.afterwards is not None:
                request.afterwards(ctx)
    except (UserError, KeyboardInterrupt) as error:
        stores = [ctx.store for ctx, _, _ in began]
        with_cells = [each for each in stores if each.outcomes]
        for each in with_cells:
            on_interruption(each.directory)
        if isinstance(error, UserError) and not with_cells:
            for each in reversed(stores):  # the first one created the folder that holds all
                each.abandon()
        raise
    finally:
        watcher.close()
        for ctx, _, _ in began:
            ctx.store.close()
    return tuple(ctx.store.directory for ctx, _, _ in began)


def prepare_context(request: RunRequest, work: Work, *, watcher: Progress, say: Callable[[str], None]) -> RunContext:
    """Prepare a run. The store stays locked until it is closed.

    Raises:
        UserError: the machine cannot run the request, or the directory cannot be used.
    """
    cache = cache_folder()
    tool = uv.on_this_machine(cache)
    for renaming in plan.renamings(request.where):
        say(renaming)
    if request.device == "auto" and request.resolved_device == "cpu":
        say(f"--device auto: cells run on the CPU ({request.why_cpu})")
    pool = machine.gpus() if devices.uses_gpus(request.resolved_device) else None
    backend, packed, workers = request.backend(tool), request.packed, request.worker_count
    if request.replaced is not None:
        packed = replace(request.replaced, build=backend)
        packed.check([each for each, _ in work])
    return RunContext(
        store=open_store(request, work),  # after every other check: bad input leaves no directory behind
        uv=tool,
        cache=cache,
        device=request.resolved_device,
        pool=pool,
        backend=backend,
        packed=packed,
        workers=workers,
        keep_free_bytes=int(request.keep_free_gb * disk.GIGABYTE),
        lock_folder=locks.locks_folder(request.versions),
        suite=request.suite,
        limits=request.limits,
        cold=request.cold,
        cold_sample=request.cold_sample,
        repeats=request.repeat_count,
        variables=request.variables,
        watcher=watcher,
        say=say,
    )


def chosen_backend(request: RunRequest, tool: Uv) -> Backend:
    """The build of torch; on a machine with GPUs one with CUDA, even if uv does not detect the driver."""
    return backends.choose(
        request.torch_backend, uv=tool, gpu=lambda: devices.uses_gpus(request.resolved_device) or backends.has_gpu()
    )


def default_workers(device: str) -> int:
    """One worker for each core or GPU; a cell with several ranks waits for as many GPUs."""
    return min(machine.cores(), len(machine.gpus().gpus)) if devices.uses_gpus(device) else machine.cores()


def open_store(request: RunRequest, work: Work) -> store.Store:
    """Open the run's directory, new or continued."""
    planned = tuple(str(CellKey(each.key, case.id)) for each, cases in work for case in cases)
    record = RunRecord(
        harness=metadata.version("ftmatrix"),
        code=digest_cache.digest(request.suite.code, cache_folder()),
        started=datetime.now(UTC),
        device=request.resolved_device,
        request=request.as_words,
        planned=planned,
        hardware=machine.hardware(request.resolved_device),
        facts=dict(machine.facts(request.resolved_device)),
    )
    if not request.resume:
        directory = request.out or RUNS / record.started.strftime(store.FOLDER)
        return store.Store.create(directory, record)
    resumed = store.Store.resume(request.out or store.newest_runs(RUNS)[0])
    if resumed.record.device != record.device:
        resumed.close()
        raise UserError(
            f"{resumed.directory} is a run on {resumed.record.device}, and a run has one device; continue it with "
            f"--device {resumed.record.device}, or start another for {record.device}"
        )
    every = tuple(dict.fromkeys((*resumed.record.planned, *planned)))
    resumed.replan(record.model_copy(update={"started": resumed.record.started, "planned": every}))
    return resumed
