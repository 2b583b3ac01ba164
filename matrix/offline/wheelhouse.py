"""Whole sets out of a folder: under their own names and locks, as an index would have given them, with none asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cases.space.verdict import Phase
from matrix.environments import provision
from matrix.errors import UserError
from matrix.evidence import Evidence
from matrix.offline.manifest import digest
from matrix.versions.backends import LOCKED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.environments.environment import Environment
    from matrix.offline.manifest import Pack
    from matrix.versions.locks import Lock
    from matrix.versions.sets import VersionSet
    from matrix.versions.uv import Uv


@dataclass(frozen=True, kw_only=True)
class Wheelhouse:
    """A pack whose whole sets are installed as they are."""

    pack: Pack
    cache: Path
    uv: Uv
    backend: str = LOCKED
    host_paths: tuple[str, ...] = ()

    @property
    def sets(self) -> tuple[VersionSet, ...]:
        """Those that are there as a whole.

        Raises:
            UserError: there is none.
        """
        found = self.pack.whole_sets
        if not found:
            raise UserError(
                f"--offline {self.pack.folder}: no set is there as a whole: --system-torch lays what is there over the"
                " host's torch; `ftmatrix pack` without --system-torch and --exclude packs whole sets"
            )
        return found

    def lock(self, version_set: VersionSet) -> Lock:
        return self.pack.lock(version_set)

    def install(self, lock: Lock, *, make_room: Callable[[], object] = tuple) -> Environment | Evidence:
        """The set's environment, made of the folder's wheels by the lock's hashes; or why there is none.

        Raises:
            UserError: the pack is damaged.
        """
        files = self.pack.wheels(lock.version_set.key)
        python = lock.version_set.python
        if self.uv("python", "find", "--no-project", python).exit_code != 0:
            there = ", ".join(provision.interpreters(self.uv)) or "none"
            return Evidence(
                phase=Phase.INSTALL,
                reason=f"Python {python} is needed, and there is none that works (found: {there});"
                f" `ftmatrix pack --python` packs for another",
            )
        source = self.uv.from_folder(self.pack.wheels_folder)
        made = provision.install(lock, cache=self.cache, uv=source, make_room=make_room)
        if isinstance(made, Evidence):
            check(files, lock)
        return made


def check(files: list[tuple[str, str, Path]], lock: Lock) -> None:
    """Whether it was the pack that failed, not the set.

    Raises:
        UserError: a file is not the one that was packed.
    """
    for _, _, path in files:
        if digest(path) not in lock.text:
            raise UserError(
                f"{path}: damaged: its hash is not the one of the lock; pack the set again, or copy the file"
            )
