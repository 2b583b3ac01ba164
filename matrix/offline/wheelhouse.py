"""Installs the complete sets of a pack, with the same names and locks as from an index, but without network."""

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
    """A pack whose complete sets are installed unchanged."""

    pack: Pack
    cache: Path
    uv: Uv
    backend: str = LOCKED
    host_paths: tuple[str, ...] = ()

    @property
    def sets(self) -> tuple[VersionSet, ...]:
        """The complete sets of the pack.

        Raises:
            UserError: there is none.
        """
        sets = self.pack.complete_sets
        if not sets:
            raise UserError(
                f"--offline {self.pack.folder}: no complete set; add --system-torch to use the host's torch, or pack"
                " complete sets with `ftmatrix pack` without --system-torch and --exclude"
            )
        return sets

    def lock(self, version_set: VersionSet) -> Lock:
        return self.pack.lock(version_set)

    def install(self, lock: Lock, *, make_room: Callable[[], object] = tuple) -> Environment | Evidence:
        """The set's environment, installed from the pack's wheels by the lock's hashes, or evidence why it cannot be.

        Raises:
            UserError: the pack is damaged.
        """
        files = self.pack.wheels(lock.version_set.key)
        python = lock.version_set.python
        if self.uv("python", "find", "--no-project", python).exit_code != 0:
            others = ", ".join(provision.interpreters(self.uv)) or "none"
            return Evidence(
                phase=Phase.INSTALL,
                reason=f"no working Python {python} found (found: {others}); "
                "`ftmatrix pack --python` packs for another",
            )
        source = self.uv.from_folder(self.pack.wheels_folder)
        result = provision.install(lock, cache=self.cache, uv=source, make_room=make_room)
        if isinstance(result, Evidence):
            check_hashes(files, lock)
        return result


def check_hashes(files: list[tuple[str, str, Path]], lock: Lock) -> None:
    """Check that the pack is intact, so that a failure is the set's.

    Raises:
        UserError: a file has changed since it was packed.
    """
    for _, _, path in files:
        if digest(path) not in lock.text:
            raise UserError(
                f"{path}: damaged, its hash differs from the lock's; pack the set again, or copy the file again"
            )
