"""GPUs lent to cells: disjoint ones, across all runs on a machine, and none that somebody else is using.

A GPU is lent by a lock on a file that is named for its UUID. The kernel gives the lock back when the process that has
it ends, however it ends. Who waits for several takes them one by one while nobody else takes any, so that a large cell
is not passed for ever by small ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cases import nvml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.nvml import Gpu, Usage

IDLE_MIB = 256.0  # a driver holds less than this on an idle GPU; one context of a process takes more
SETTLES_S = 20.0  # how long memory of a process that was ended may take to come back
POLL_S = 0.02


class BusyError(RuntimeError):
    """Not enough of the GPUs are free of others' work."""


class Source(Protocol):
    """What tells of GPUs: the driver, its version, and the newest CUDA that it runs."""

    @property
    def version(self) -> str: ...

    @property
    def cuda(self) -> str: ...

    def gpus(self) -> tuple[Gpu, ...]:
        """All of them."""

    def usage(self, gpu: Gpu) -> Usage:
        """What is on one now."""


@dataclass
class Pool:
    """The GPUs that this process may use; ``folder`` holds their locks and is the same for all runs on the machine."""

    source: Source
    gpus: tuple[Gpu, ...]
    patience_s: float = SETTLES_S
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()) / "ftmatrix-gpus")

    @contextlib.contextmanager
    def lent(self, count: int) -> Iterator[tuple[str, ...]]:
        """UUIDs of that many GPUs, nobody else's until the end; waits for those that other cells have.

        Raises:
            BusyError: there are fewer, or others' work is on them.
        """
        usable = self.gpus if count == 1 else tuple(gpu for gpu in self.gpus if not gpu.is_slice)
        if len(usable) < count:
            why = "; NCCL joins no MIG slices" if len(usable) < len(self.gpus) else ""
            raise BusyError(f"needs {count} GPUs, {len(usable)} can be used here{why}")
        with contextlib.ExitStack() as held:
            with self.locked("turn"):
                taken = self.taken(usable, count, held)
            lent = tuple(gpu.uuid for gpu in taken)
            try:
                yield lent
            finally:
                self.settled(lent)

    def taken(self, usable: Sequence[Gpu], count: int, held: contextlib.ExitStack) -> list[Gpu]:
        """Lock so many of them, waiting for those that are lent, and a while for what others leave behind."""
        found: list[Gpu] = []
        end = time.monotonic() + self.patience_s
        while True:
            others: list[str] = []
            for gpu in usable:
                if len(found) < count and gpu not in found and (lock := self.tried(gpu.uuid)) is not None:
                    busy = self.busy(gpu)
                    if busy:
                        others.append(busy)
                        os.close(lock)
                    else:
                        held.callback(os.close, lock)
                        found.append(gpu)
            if len(found) == count:
                return found
            if len(usable) - len(others) < count and time.monotonic() > end:
                self.patience_s = 0.0  # it is no leftover of a process that is just ending
                raise BusyError(f"needs {count} GPUs that are free: {'; '.join(others)}")
            time.sleep(POLL_S)

    def busy(self, gpu: Gpu) -> str:
        """Who else is on a GPU that is lent to nobody; empty if it is free."""
        usage = self.source.usage(gpu)
        left = self.folder / f"{gpu.uuid}.left"
        if usage.mib < IDLE_MIB and not usage.pids:
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)
            return ""
        whose = ", which a cell of ours left behind" if left.exists() else ""
        return f"{gpu} has {usage.mib:.0f} MiB in use by {len(usage.pids) or 'hidden'} other processes{whose}"

    def settled(self, lent: Sequence[str]) -> tuple[float, str]:
        """Wait until what ran on them is gone: after how many seconds, and what stayed nevertheless.

        A GPU on which something stays is marked: it is lent to nobody while that is there, and who wants it is told.
        """
        began = time.monotonic()
        waiting = {gpu: self.busy(gpu) for gpu in self.gpus if gpu.uuid in lent and not self.is_marked(gpu)}
        while any(waiting.values()) and time.monotonic() - began < SETTLES_S:
            time.sleep(POLL_S)
            waiting = {gpu: self.busy(gpu) for gpu in waiting}
        for gpu in (gpu for gpu, busy in waiting.items() if busy):
            with contextlib.suppress(OSError):
                (self.folder / f"{gpu.uuid}.left").touch()
        return round(time.monotonic() - began, 3), "; ".join(filter(None, waiting.values()))

    def is_marked(self, gpu: Gpu) -> bool:
        return (self.folder / f"{gpu.uuid}.left").exists()

    def tried(self, name: str) -> int | None:
        """The descriptor of a lock, if it is free."""
        descriptor = self.opened(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        descriptor = self.opened(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def opened(self, name: str) -> int:
        """Of whichever user made it first: reading is enough to lock."""
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(parents=True)
            self.folder.chmod(0o1777)
        path = self.folder / name
        try:
            return os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """What ``CUDA_VISIBLE_DEVICES`` leaves of them: numbers, or beginnings of UUIDs, up to the first that means none.

    As the CUDA programming guide has it, but that numbers count in the order of the bus.
    """
    asked = environment.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for word in (part.strip() for part in asked.split(",")):
        if word.isdecimal():
            meant = [gpu for gpu in gpus if gpu.index == int(word)]
        else:
            meant = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)]
        if not meant or meant[0] in found:
            break
        found.append(meant[0])
    return tuple(found)


def pool(environment: Mapping[str, str] = os.environ) -> Pool:
    """Of this process.

    Raises:
        UnavailableError: there is no driver, or it does not answer.
    """
    driver = nvml.Driver()
    return Pool(driver, visible(driver.gpus(), environment))
