"""Reads and writes ``pack.toml``, the contents of a pack: a folder of wheels for hosts without a package index.

``pack.toml`` lists the wheels of each set, and those of pytest for each Python. The files are in ``wheels/``, which
sets share. A complete set, of which nothing was left out, has its lock in ``locks/``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import tomlkit
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from matrix.errors import UserError
from matrix.versions import locks, sets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matrix.environments.environment import Environment
    from matrix.evidence import Evidence
    from matrix.versions.locks import Lock
    from matrix.versions.sets import VersionSet

PACK: Final = "pack.toml"


class Packed(Protocol):
    """Sets that are installed from a pack: complete ones, or overlays on a host's packages."""

    @property
    def backend(self) -> str:
        """The build of torch that the environments have."""

    @property
    def sets(self) -> tuple[VersionSet, ...]: ...

    @property
    def host_paths(self) -> tuple[str, ...]:
        """Folders of the host that the environments import from."""

    def lock(self, version_set: VersionSet) -> Lock | Evidence: ...

    def install(self, lock: Lock, *, make_room: Callable[[], object] = tuple) -> Environment | Evidence: ...


@dataclass(frozen=True, kw_only=True)
class Pack:
    """A pack in a folder."""

    folder: Path

    @property
    def wheels_folder(self) -> Path:
        return self.folder / "wheels"

    @property
    def locks_folder(self) -> Path:
        return self.folder / "locks"

    @cached_property
    def document(self) -> Mapping[str, Any]:
        return sets.parsed(self.folder / PACK)

    @property
    def rows(self) -> Mapping[str, Any]:
        return sets.table(self.document, "sets", at=PACK)

    def row(self, key: str) -> Mapping[str, Any]:
        return sets.table(self.rows, key, at=f"{PACK}: sets")

    def wheels(self, key: str) -> list[tuple[str, str, Path]]:
        """Name, version and file of each wheel of a set.

        Raises:
            UserError: the pack is damaged, or lists a wheel that it lacks.
        """
        return self.files(self.row(key).get("wheels"), at=f"{PACK}: sets.{key}.wheels")

    def files(self, listed: object, *, at: str) -> list[tuple[str, str, Path]]:
        if not isinstance(listed, list) or not listed:
            raise UserError(f"{at}: expected a list of file names")
        return [wheel(self.wheels_folder / str(name), at=at) for name in listed]

    @property
    def runners(self) -> Mapping[str, Any]:
        """File names of the wheels of pytest and its dependencies, by Python version."""
        return sets.table(self.document, "runner", at=PACK) if "runner" in self.document else {}

    @property
    def complete_sets(self) -> tuple[VersionSet, ...]:
        """Sets of which nothing was left out."""
        return tuple(self.version_set(key) for key in self.rows if "lock" in self.row(key))

    def version_set(self, key: str) -> VersionSet:
        at, row = f"{PACK}: sets.{key}", self.row(key)
        return sets.VersionSet(
            key=sets.checked_key(key),
            python=sets.python_version(row, at=at),
            as_of=sets.as_of_date(row, at=at),
            pins=sets.pinned(sets.table(row, "pins", at=at), at=f"{at}.pins"),
            why=sets.sentence(row, "why", at=at),
        )

    def lock(self, version_set: VersionSet) -> Lock:
        """The lock of a complete set.

        Raises:
            UserError: the lock is missing, or has changed since it was packed.
        """
        lock = locks.read(version_set, folder=self.locks_folder)
        expected = self.row(version_set.key).get("lock")
        if lock is None or lock.digest != expected:
            problem = "its lock is missing" if lock is None else f"its lock has the digest {lock.digest}"
            raise UserError(f"{PACK}: sets.{version_set.key}: {problem} instead of {expected}; pack the set again")
        return lock


def open_pack(folder: Path) -> Pack:
    """The pack in the folder of ``--offline``.

    Raises:
        UserError: the folder is no pack.
    """
    if not (folder / PACK).is_file():
        raise UserError(f"--offline {folder}: there is no {PACK} in it; `ftmatrix pack` writes it last")
    return Pack(folder=folder.absolute())


@dataclass(frozen=True, kw_only=True)
class PackedSet:
    """A set as ``pack.toml`` lists it. ``lock`` is its digest, empty if something was left out."""

    version_set: VersionSet
    wheels: Sequence[str]
    lock: str = ""

    @property
    def table(self) -> tomlkit.items.Table:
        table = tomlkit.table()
        table["python"] = self.version_set.python
        table["as-of"] = self.version_set.as_of
        table["why"] = self.version_set.why
        if self.lock:
            table["lock"] = self.lock
        table["wheels"] = tomlkit.array().multiline(multiline=True)
        table["wheels"].extend(sorted(self.wheels))
        table["pins"] = dict(self.version_set.pins)
        return table


def write(folder: Path, packed: Sequence[PackedSet], runners: Mapping[str, Sequence[str]]) -> None:
    """Add sets to ``pack.toml``, or replace those of the same key. Replaces the file in one step."""
    path = folder / PACK
    document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    for name in ("sets", "runner"):
        document.setdefault(name, tomlkit.table(is_super_table=name == "sets"))
    for each in packed:
        document["sets"][each.version_set.key] = each.table
    for python, files in runners.items():
        document["runner"][python] = sorted(files)
    sets.save(document, path)


def wheel(path: Path, *, at: str) -> tuple[str, str, Path]:
    """Name, version and path of a wheel.

    Raises:
        UserError: the file is missing, or its name is not that of a wheel.
    """
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UserError(f"{at}: {error}") from error
    if not path.is_file():
        raise UserError(f"{at}: {path.name} is not in {path.parent}")
    return name, str(version), path


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
