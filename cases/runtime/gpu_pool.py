"""GPUs lent to cells: disjoint ones, across all runs on a machine, and none that somebody else is using.

A GPU is lent by a lock on a file that is named for its UUID. The kernel gives the lock back when the process that has
it ends, however it ends. Who waits for several takes them one by one while nobody else takes any, so that a large cell
is not passed for ever by small ones.

Runs that see different folders of locks (containers) know of each other only by what is on a GPU: one that has others'
work on it is not lent, but two that begin in the same second may both take it.
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
SETTLES_S = 20.0  # how long memory of a process that was ended may take to come back
POLL_S = 0.02
NOTED_S = 300.0  # how long it counts that somebody waited for others' work to end
HIDDEN = "hidden other processes"
LACKING = {"lacking": "GPUs"}  # a fact of what was skipped for want of them: at another time there may be some
SHARED = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108 - whoever runs on this machine has to find the same locks
READABLE = 0o644  # whatever the umask is


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


def locks_folder(shared: Sequence[Path] = SHARED) -> Path:
    """The same for every run on the machine, whatever ``TMPDIR`` says to each."""
    usable = (folder for folder in shared if os.access(folder, os.R_OK | os.W_OK | os.X_OK))
    return next(usable, Path(tempfile.gettempdir())) / "ftmatrix-gpus"


@dataclass
class Pool:
    """The GPUs that this process may use; ``folder`` holds their locks and is the same for all runs on the machine."""

    source: Source
    gpus: tuple[Gpu, ...]
    patience_s: float = SETTLES_S
    folder: Path = field(default_factory=locks_folder)

    @contextlib.contextmanager
    def lent(self, count: int) -> Iterator[tuple[str, ...]]:
        """UUIDs of that many GPUs, nobody else's until the end; waits for those that other cells have.

        Raises:
            BusyError: there are fewer, or others' work is on them.
        """
        too_few = self.lacking(count)
        if too_few:
            raise BusyError(too_few)
        with contextlib.ExitStack() as held:
            with self.locked("turn"):
                taken = self.taken(self.usable(count), count, held)
            lent = tuple(gpu.uuid for gpu in taken)
            try:
                yield lent
            finally:
                self.settled(lent)

    def usable(self, count: int) -> tuple[Gpu, ...]:
        """Those that so many ranks could be given."""
        return self.gpus if count == 1 else tuple(gpu for gpu in self.gpus if not gpu.is_slice)

    def lacking(self, count: int, occupied: Mapping[str, str] = MappingProxyType({})) -> str:
        """Why so many cannot be had, with others' work on some, by UUID; empty if they can, sooner or later."""
        usable = self.usable(count)
        if len(usable) < count:
            why = "; NCCL joins no MIG slices" if len(usable) < len(self.gpus) else ""
            return f"needs {count} GPUs, {len(usable)} can be used here{why}"
        others = [occupied[gpu.uuid] for gpu in usable if gpu.uuid in occupied]
        return f"needs {count} GPUs that are free: {'; '.join(others)}" if len(usable) - len(others) < count else ""

    def occupied(self) -> dict[str, str]:
        """Who is on which GPU, by UUID, but for cells of this harness; waits for what others leave behind.

        One that does not answer counts as one that others are on.
        """
        end = time.monotonic() + self.patience_s
        while True:
            found = {gpu.uuid: who for gpu in self.gpus if (who := self.others_on(gpu))}
            if self.stays(found, end=end):
                return found
            time.sleep(POLL_S)

    def others_on(self, gpu: Gpu) -> str:
        """Who else is on a GPU; empty if nobody is, or it is lent."""
        lock = self.tried(gpu.uuid)
        if lock is None:
            return ""
        try:
            return self.unusable(gpu)
        finally:
            os.close(lock)

    def taken(self, usable: Sequence[Gpu], count: int, held: contextlib.ExitStack) -> list[Gpu]:
        """Lock so many of them, waiting for those that are lent, and a while for what others leave behind."""
        found: list[Gpu] = []
        end = time.monotonic() + self.patience_s
        while True:
            others: dict[str, str] = {}
            for gpu in usable:
                if len(found) < count and gpu not in found and (lock := self.tried(gpu.uuid)) is not None:
                    why = self.unusable(gpu)
                    if why:
                        others[gpu.uuid] = why
                        os.close(lock)
                    else:
                        held.callback(os.close, lock)
                        self.note(gpu.uuid).unlink(missing_ok=True)
                        found.append(gpu)
            if len(found) == count:
                return found
            if len(usable) - len(others) < count and self.stays(others, end=end):
                raise BusyError(self.lacking(count, others))
            time.sleep(POLL_S)

    def stays(self, others: Mapping[str, str], *, end: float) -> bool:
        """Whether all of that is no leftover of a process that is just ending: somebody waited for it to go.

        Who did leaves a note for the others, so that not every worker of a run waits for the same.
        """
        notes = [self.note(uuid) for uuid in others]
        if time.monotonic() <= end and not all(map(is_fresh, notes)):
            return False
        for note in notes:
            note.touch()
        return True

    def note(self, uuid: str) -> Path:
        return self.folder / f"{uuid}-others-{os.getuid()}"

    def unusable(self, gpu: Gpu) -> str:
        """Why a GPU that is lent to nobody cannot be; one that broke costs neither the others nor what ran on it."""
        try:
            return self.busy(gpu)
        except UnavailableError as error:
            return f"{gpu} cannot be asked: {error}"

    def busy(self, gpu: Gpu) -> str:
        """Who else is on a GPU that is lent to nobody; empty if it is free.

        Raises:
            UnavailableError: it does not answer.
        """
        usage = self.source.usage(gpu)
        mark = self.mark(gpu)
        if usage.mib < IDLE_MIB and not usage.pids:
            mark.unlink(missing_ok=True)
            return ""
        who = f"{len(usage.pids)} other processes ({', '.join(map(str, usage.pids))})" if usage.pids else HIDDEN
        whose = ", which a cell of ours left behind" if mark.exists() else ""
        return f"{gpu} has {usage.mib:.0f} MiB in use by {who}{whose}"

    def settled(self, lent: Sequence[str]) -> tuple[float, str]:
        """Wait until what ran on them is gone: after how many seconds, and what stayed nevertheless.

        A GPU on which something stays is marked: it is lent to nobody while that is there, and who wants it is told.
        """
        began = time.monotonic()
        waiting = {gpu: self.unusable(gpu) for gpu in self.gpus if gpu.uuid in lent and not self.mark(gpu).exists()}
        while any(waiting.values()) and time.monotonic() - began < SETTLES_S:
            time.sleep(POLL_S)
            waiting = {gpu: self.unusable(gpu) for gpu in waiting}
        for gpu in (gpu for gpu, why in waiting.items() if why):
            self.mark(gpu).touch()
        return round(time.monotonic() - began, 3), "; ".join(filter(None, waiting.values()))

    def mark(self, gpu: Gpu) -> Path:
        return self.folder / f"{gpu.uuid}-left-{os.getuid()}"

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
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, READABLE)
            with contextlib.suppress(PermissionError):  # somebody else made it meanwhile
                os.fchmod(descriptor, READABLE)
            return descriptor


def is_fresh(note: Path) -> bool:
    try:
        return time.time() - note.stat().st_mtime < NOTED_S
    except OSError:
        return False


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
