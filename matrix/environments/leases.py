"""Who is using an environment: advisory file locks, which end with the process that holds them, however it ends."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, eq=False)
class Hold:
    """A claim on what the file stands for. Dropped by ``release``, or when the last process that has it ends."""

    file: IO[bytes]

    def release(self) -> None:
        self.file.close()

    def share(self) -> None:
        """Let others use it as well. Not atomic: someone else's exclusive hold may come between."""
        fcntl.flock(self.file, fcntl.LOCK_SH)


def shared(path: Path) -> Hold:
    return taken(path, fcntl.LOCK_SH)


def exclusive(path: Path) -> Hold:
    """Wait until nobody else holds it."""
    return taken(path, fcntl.LOCK_EX)


def exclusive_now(path: Path) -> Hold | None:
    """None if somebody holds it, this process included."""
    try:
        return taken(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def taken(path: Path, how: int) -> Hold:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    try:
        fcntl.flock(file, how)
    except BaseException:
        file.close()
        raise
    return Hold(file)
