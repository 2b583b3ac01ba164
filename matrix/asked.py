"""What a user asked for, checked, and a run made ready for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix import backends, disk, environments, locks, machine, pipeline, plan, store, uv
from matrix import bench as benches
from matrix import sets as known_sets
from matrix.errors import UserError
from matrix.execute import Limits, Suite
from matrix.outcome import RunRecord, cell_key
from matrix.progress import Progress, Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.case import Case
    from matrix.sets import VersionSet

DEVICES: Final = ("auto", "cpu", "cuda")
RUNS: Final = Path("runs")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A run as a user asks for it; everything has the default of the plain command."""

    sets: str = "default"
    where: str = ""
    device: str = "auto"
    torch_backend: str = "auto"
    out: Path | None = None
    resume: bool = False
    workers: int | None = None
    keep_free_gb: float = disk.BUDGET / disk.GIGABYTE
    cold: bool = False
    cold_sample: int = 1
    versions: Path = known_sets.PACKAGED
    suite: Suite = field(default_factory=Suite)
    limits: Limits = field(default_factory=Limits)

    def version_sets(self) -> tuple[VersionSet, ...]:
        return known_sets.select(known_sets.load(self.versions), self.sets)

    def cases(self) -> tuple[Case, ...]:
        return plan.select(self.suite.cases, plan.where(self.where), asked=self.where)

    def check(self) -> None:
        """Raise for what no run could be made of.

        Raises:
            UserError: a device, a number of workers or a budget that does not exist.
        """
        if self.device not in DEVICES:
            raise UserError(f"--device {self.device}: expected auto, cpu or cuda")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers {self.workers}: expected a whole number above 0")
        if self.keep_free_gb < 0:
            raise UserError(f"--keep-free {self.keep_free_gb}: expected a number of gigabytes, 0 or more")

    @property
    def place(self) -> str:
        """``cpu`` or ``cuda``; ``auto`` is cuda where there is a GPU."""
        if self.device != "auto":
            return self.device
        return "cuda" if backends.has_gpu() else "cpu"

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.version_sets()) * len(self.cases())

    @property
    def words(self) -> dict[str, str]:
        return {"sets": self.sets, "where": self.where, "device": self.device, "torch_backend": self.torch_backend}


def run(
    asked: Asked,
    *,
    watcher: Progress | None = None,
    say: Callable[[str], None] = print,
    when_cut: Callable[[Path], object] = str,
) -> Path:
    """Measure what was asked; the run's directory.

    ``when_cut`` gets the directory when the run ends early and some cells are finished.

    Raises:
        UserError: bad input, or a machine that cannot do it; nothing half-made is left.
    """
    asked.check()
    chosen, cases = asked.version_sets(), asked.cases()
    cache = environments.cache_folder()
    tool = uv.on_this_machine(cache)
    backend = backends.choose(asked.torch_backend, uv=tool)
    kept = opened(asked, chosen, cases)
    workshop = pipeline.Workshop(
        store=kept,
        uv=tool,
        cache=cache,
        device=asked.place,
        backend=backend,
        workers=asked.workers or default_workers(asked.place),
        keep_free_bytes=int(asked.keep_free_gb * disk.GIGABYTE),
        lock_folder=locks.folder_beside(asked.versions),
        suite=asked.suite,
        limits=asked.limits,
        cold=asked.cold,
        cold_sample=asked.cold_sample,
        watcher=watcher or Silent(),
        say=say,
    )
    try:
        pipeline.run(chosen, cases, workshop)
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


def bench(asked: Asked, *, repeats: int, sample: int, say: Callable[[str], None]) -> benches.Measured:
    """Measure the harness on one set, the newest of those asked for.

    Raises:
        UserError: bad input, or a set that cannot be installed.
    """
    asked.check()
    cache = environments.cache_folder()
    tool = uv.on_this_machine(cache)
    ground = benches.Ground(
        version_set=max(asked.version_sets(), key=lambda each: each.as_of),
        cases=asked.cases(),
        uv=tool,
        cache=cache,
        backend=backends.choose(asked.torch_backend, uv=tool),
        device=asked.place,
        workers=asked.workers or default_workers(asked.place),
        hardware=machine.hardware(asked.place),
        say=say,
    )
    return benches.measure(ground, repeats=repeats, sample=sample)


def default_workers(device: str) -> int:
    """One worker a core; on GPUs one, since cells would share them."""
    return machine.cores() if device == "cpu" else 1


def opened(asked: Asked, chosen: tuple[VersionSet, ...], cases: tuple[Case, ...]) -> store.Store:
    """The run's directory, new or continued."""
    planned = tuple(cell_key(each.key, case.id) for each in chosen for case in cases)
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
