"""The store, the tools and the options of a run, which every step of it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cases.runtime.wire import Limits
from matrix.environments import disk
from matrix.run import machine
from matrix.run.execute import Suite
from matrix.run.progress import Progress, Silent
from matrix.versions import locks
from matrix.versions.backends import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cases.runtime.gpu_pool import Pool
    from matrix.offline.manifest import Packed
    from matrix.run.store import Store
    from matrix.versions.uv import Uv


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The store, the tools and the options of a run; everything except the sets and the cases."""

    store: Store
    uv: Uv
    cache: Path
    device: str = "cpu"
    pool: Pool | None = None  # of GPUs; None on the CPU
    backend: Backend = field(default_factory=Backend)
    packed: Packed | None = None
    workers: int = field(default_factory=machine.cores)
    keep_free_bytes: int = disk.BUDGET
    lock_folder: Path = locks.PACKAGED
    suite: Suite = field(default_factory=Suite)
    limits: Limits = field(default_factory=Limits)
    cold: bool = False
    cold_sample: int = 1
    repeats: int = 1
    variables: Mapping[str, str] = field(default_factory=dict)  # further ones of the environment of ranks
    watcher: Progress = field(default_factory=Silent)
    say: Callable[[str], None] = print

    @property
    def hardware(self) -> str:
        return self.store.record.hardware
