"""Leases on environments: advisory file locks. The kernel drops a lease when its last process ends, however it ends."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """A shared or exclusive claim on a lock file. ``release`` drops it, and so does the end of its last process."""

    file: IO[bytes]

    def release(self) -> None:
        self.file.close()

    def share(self) -> None:
        """Downgrade an exclusive lease. Not atomic: another process may get an exclusive lease in between."""
        fcntl.flock(self.file, fcntl.LOCK_SH)


@dataclass(frozen=True, slots=True, eq=False)
class LeaseGroup:
    """Leases of an environment that consists of several folders."""

    leases: tuple[Lease | LeaseGroup, ...]

    def release(self) -> None:
        for each in self.leases:
            each.release()


def acquire_shared(path: Path) -> Lease:
    """A shared lease. Waits until no other process holds an exclusive one."""
    return lock_file(path, fcntl.LOCK_SH)


def acquire_exclusive(path: Path) -> Lease:
    """An exclusive lease. Waits until nobody else holds one."""
    return lock_file(path, fcntl.LOCK_EX)


@contextmanager
def held_exclusively(path: Path) -> Iterator[Lease]:
    """Hold an exclusive lease inside a ``with`` block."""
    lease = acquire_exclusive(path)
    try:
        yield lease
    finally:
        lease.release()


def try_acquire_exclusive(path: Path) -> Lease | None:
    """An exclusive lease, or None if anybody holds one, this process included."""
    try:
        return lock_file(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def lock_file(path: Path, operation: int) -> Lease:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    try:
        fcntl.flock(file, operation)
    except BaseException:
        file.close()
        raise
    return Lease(file)
