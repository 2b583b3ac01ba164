"""Exclusive GPUs for cells, across all runs on a machine; GPUs that other processes use are skipped.

A run acquires a GPU by locking a file that is named after its UUID. The kernel releases the lock when the process
ends, however it ends. Cells that wait for several GPUs acquire them one by one while no other cell acquires any, so
that small cells cannot starve a large one.

Runs with different lock folders (containers) see each other only by the memory in use on a GPU: they skip GPUs that are
in use, but two runs that start in the same second may both acquire one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from cases.runtime import nvml
from cases.runtime.nvml import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cases.runtime.nvml import Gpu, Usage

IDLE_MIB = 256.0  # a driver holds less than this on an idle GPU; one context of a process takes more
SETTLES_S = 20.0  # the memory of a process that has ended may take this long to be freed
POLL_S = 0.02
NOTED_S = 300.0  # how long a note counts in which another worker recorded that it waited in vain
HIDDEN = "hidden other processes"
LACKING = {"lacking": "GPUs"}  # a fact of cells that were skipped because no GPU was free; one may be free later
SHARED = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108 - every run on this machine has to find the same locks
READABLE = 0o644  # independent of the umask


class BusyError(RuntimeError):
    """Too few GPUs are free of other processes."""


class GpuSource(Protocol):
    """A source of facts about GPUs: the driver, its version, and the newest CUDA that it runs."""

    @property
    def version(self) -> str: ...

    @property
    def cuda(self) -> str: ...

    def gpus(self) -> tuple[Gpu, ...]: ...

    def usage(self, gpu: Gpu) -> Usage:
        """The present use of one GPU."""


def locks_folder(shared: Sequence[Path] = SHARED) -> Path:
    """The folder of locks. Every run on the machine finds the same one, whatever its ``TMPDIR``."""
    usable = (folder for folder in shared if os.access(folder, os.R_OK | os.W_OK | os.X_OK))
    return next(usable, Path(tempfile.gettempdir())) / "ftmatrix-gpus"


@dataclass
class Pool:
    """The GPUs that this process may use. All runs on the machine use the same ``folder`` for the locks."""

    source: GpuSource
    gpus: tuple[Gpu, ...]
    settle_timeout_s: float = SETTLES_S
    folder: Path = field(default_factory=locks_folder)

    @contextlib.contextmanager
    def acquire(self, count: int) -> Iterator[tuple[str, ...]]:
        """Acquire GPUs for the time of the context; waits while other cells hold them. Yields their UUIDs.

        Raises:
            BusyError: there are fewer GPUs, or other processes use them.
        """
        shortage = self.shortage(count)
        if shortage:
            raise BusyError(shortage)
        with contextlib.ExitStack() as held:
            with self.locked("turn"):
                gpus = self.lock_gpus(self.usable(count), count, held)
            uuids = tuple(gpu.uuid for gpu in gpus)
            try:
                yield uuids
            finally:
                self.wait_until_free(uuids)

    def usable(self, count: int) -> tuple[Gpu, ...]:
        """The GPUs that a cell of so many ranks may use."""
        return self.gpus if count == 1 else tuple(gpu for gpu in self.gpus if not gpu.is_slice)

    def shortage(self, count: int, occupied: Mapping[str, str] = MappingProxyType({})) -> str:
        """The reason why a cell cannot acquire so many GPUs; empty if it can, sooner or later.

        ``occupied`` describes, by UUID, the foreign use of GPUs.
        """
        usable = self.usable(count)
        needs = f"needs {count} GPU{'s' if count > 1 else ''}"
        if len(usable) < count:
            why = "; NCCL joins no MIG slices" if len(usable) < len(self.gpus) else ""
            return f"{needs}, {len(usable)} can be used here{why}"
        foreign = [occupied[gpu.uuid] for gpu in usable if gpu.uuid in occupied]
        verb = "are" if count > 1 else "is"
        return f"{needs} that {verb} free: {'; '.join(foreign)}" if len(usable) - len(foreign) < count else ""

    def occupied(self) -> dict[str, str]:
        """The foreign use of each GPU, by UUID; waits for the memory of processes that are ending.

        A GPU that does not answer counts as occupied. Cells of this harness do not count.
        """
        end = time.monotonic() + self.settle_timeout_s
        while True:
            found = {gpu.uuid: use for gpu in self.gpus if (use := self.foreign_use(gpu))}
            if self.is_lasting(found, end=end):
                return found
            time.sleep(POLL_S)

    def foreign_use(self, gpu: Gpu) -> str:
        """A description of the foreign use of a GPU; empty if there is none, or if a cell of ours holds the GPU."""
        lock = self.try_lock(gpu.uuid)
        if lock is None:
            return ""
        try:
            return self.why_unusable(gpu)
        finally:
            os.close(lock)

    def lock_gpus(self, usable: Sequence[Gpu], count: int, held: contextlib.ExitStack) -> list[Gpu]:
        """Lock so many GPUs; waits for other cells, and a while for the memory of processes that are ending.

        Raises:
            BusyError: too few GPUs are free of other processes.
        """
        found: list[Gpu] = []
        end = time.monotonic() + self.settle_timeout_s
        while True:
            occupied: dict[str, str] = {}
            for gpu in usable:
                if len(found) < count and gpu not in found and (lock := self.try_lock(gpu.uuid)) is not None:
                    why = self.why_unusable(gpu)
                    if why:
                        occupied[gpu.uuid] = why
                        os.close(lock)
                    else:
                        held.callback(os.close, lock)
                        self.note(gpu.uuid).unlink(missing_ok=True)
                        found.append(gpu)
            if len(found) == count:
                return found
            if len(usable) - len(occupied) < count and self.is_lasting(occupied, end=end):
                raise BusyError(self.shortage(count, occupied))
            time.sleep(POLL_S)

    def is_lasting(self, occupied: Mapping[str, str], *, end: float) -> bool:
        """Return whether the use of these GPUs outlasted a wait, so that it is no leftover of a process that is ending.

        The worker that waited leaves a note, so that not every worker of a run waits for the same processes.
        """
        notes = [self.note(uuid) for uuid in occupied]
        if time.monotonic() <= end and not all(map(is_fresh, notes)):
            return False
        for note in notes:
            note.touch()
        return True

    def note(self, uuid: str) -> Path:
        return self.folder / f"{uuid}-others-{os.getuid()}"

    def why_unusable(self, gpu: Gpu) -> str:
        """The reason why no cell can acquire a GPU; empty if it is free. A broken GPU does not affect the others."""
        try:
            return self.use(gpu)
        except UnavailableError as error:
            return f"{gpu} does not answer: {error}"

    def use(self, gpu: Gpu) -> str:
        """A description of the use of a GPU that no cell of ours holds; empty if it is free.

        Raises:
            UnavailableError: it does not answer.
        """
        usage = self.source.usage(gpu)
        mark = self.mark(gpu)
        if usage.mib < IDLE_MIB and not usage.pids:
            mark.unlink(missing_ok=True)
            return ""
        processes = "process" if len(usage.pids) == 1 else "processes"
        pids = ", ".join(map(str, usage.pids))
        users = f"{len(usage.pids)} other {processes} ({pids})" if usage.pids else HIDDEN
        origin = ", which a cell of ours left behind" if mark.exists() else ""
        return f"{gpu} has {usage.mib:.0f} MiB in use by {users}{origin}"

    def wait_until_free(self, uuids: Sequence[str]) -> tuple[float, str]:
        """Wait until the processes and memory of a cell are gone from its GPUs.

        A GPU with remaining use is marked: no cell acquires it until it is free, and reports give the reason.

        Returns:
            The seconds waited, and a description of the remaining use.
        """
        began = time.monotonic()
        waiting = {
            gpu: self.why_unusable(gpu) for gpu in self.gpus if gpu.uuid in uuids and not self.mark(gpu).exists()
        }
        while any(waiting.values()) and time.monotonic() - began < SETTLES_S:
            time.sleep(POLL_S)
            waiting = {gpu: self.why_unusable(gpu) for gpu in waiting}
        for gpu in (gpu for gpu, why in waiting.items() if why):
            self.mark(gpu).touch()
        return round(time.monotonic() - began, 3), "; ".join(filter(None, waiting.values()))

    def mark(self, gpu: Gpu) -> Path:
        return self.folder / f"{gpu.uuid}-left-{os.getuid()}"

    def try_lock(self, name: str) -> int | None:
        """The descriptor of a lock; None if another process holds it."""
        descriptor = self.open_lock(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        descriptor = self.open_lock(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def open_lock(self, name: str) -> int:
        """Open a lock file, whichever user created it: reading is enough to lock."""
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(parents=True)
            self.folder.chmod(0o1777)
        path = self.folder / name
        try:
            return os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, READABLE)
            with contextlib.suppress(PermissionError):  # another user created it meanwhile
                os.fchmod(descriptor, READABLE)
            return descriptor


def is_fresh(note: Path) -> bool:
    try:
        return time.time() - note.stat().st_mtime < NOTED_S
    except OSError:
        return False


def visible(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` names by number or by the beginning of a UUID, up to the first bad name.

    This follows the CUDA programming guide, but numbers count in the order of the bus.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(gpus)
    found: list[Gpu] = []
    for word in (part.strip() for part in listed.split(",")):
        if word.isdecimal():
            matching = [gpu for gpu in gpus if gpu.index == int(word)]
        else:
            matching = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)]
        if not matching or matching[0] in found:
            break
        found.append(matching[0])
    return tuple(found)


def pool(environment: Mapping[str, str] = os.environ) -> Pool:
    """The pool of this process.

    Raises:
        UnavailableError: no driver is installed, or it does not answer.
    """
    driver = nvml.NvmlDriver()
    return Pool(driver, visible(driver.gpus(), environment))
