"""A folder of wheels that sets can be run from where no index is reached: what is in it, and how that is written down.

``pack.toml`` lists the wheels of each set and of the runner (pytest) for each Python; the files lie in ``wheels/``, a
wheel that several sets share once. A set that is there as a whole has its lock in ``locks/``.
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
    """Sets that come out of a folder: whole, or laid over what a host has."""

    @property
    def backend(self) -> str:
        """Which build of torch its environments have."""

    @property
    def sets(self) -> tuple[VersionSet, ...]: ...

    @property
    def host_paths(self) -> tuple[str, ...]:
        """Folders of the host that environments see."""

    def lock(self, version_set: VersionSet) -> Lock | Evidence: ...

    def install(self, lock: Lock, *, make_room: Callable[[], object] = tuple) -> Environment | Evidence: ...


@dataclass(frozen=True, kw_only=True)
class Pack:
    """The folder."""

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
        """Name, version and file of each wheel of a set, by the pack's name for it.

        Raises:
            UserError: the pack is damaged, or lists a wheel that is not there.
        """
        return self.files(self.row(key).get("wheels"), at=f"{PACK}: sets.{key}.wheels")

    def files(self, listed: object, *, at: str) -> list[tuple[str, str, Path]]:
        if not isinstance(listed, list) or not listed:
            raise UserError(f"{at}: expected a list of file names")
        return [wheel(self.wheels_folder / str(name), at=at) for name in listed]

    @property
    def runners(self) -> Mapping[str, Any]:
        """By Python, the wheels of pytest and what it needs."""
        return sets.table(self.document, "runner", at=PACK) if "runner" in self.document else {}

    @property
    def whole_sets(self) -> tuple[VersionSet, ...]:
        """Those of which nothing was left out."""
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
        """The lock that travelled with a whole set.

        Raises:
            UserError: it is not there, or is another one than was packed.
        """
        found = locks.read(version_set, folder=self.locks_folder)
        wanted = self.row(version_set.key).get("lock")
        if found is None or found.digest != wanted:
            there = "there is none" if found is None else f"the one that is there has {found.digest}"
            raise UserError(f"{PACK}: sets.{version_set.key}: its lock has the digest {wanted}, {there}: pack it again")
        return found


def opened(folder: Path) -> Pack:
    """The pack that somebody named.

    Raises:
        UserError: the folder is none.
    """
    if not (folder / PACK).is_file():
        raise UserError(f"--offline {folder}: there is no {PACK} in it; `ftmatrix pack` writes it when all is there")
    return Pack(folder=folder.absolute())


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is written of a set. ``lock``: its digest, if nothing was left out."""

    version_set: VersionSet
    wheels: Sequence[str]
    lock: str = ""

    @property
    def table(self) -> tomlkit.items.Table:
        made = tomlkit.table()
        made["python"] = self.version_set.python
        made["as-of"] = self.version_set.as_of
        made["why"] = self.version_set.why
        if self.lock:
            made["lock"] = self.lock
        made["wheels"] = tomlkit.array().multiline(multiline=True)
        made["wheels"].extend(sorted(self.wheels))
        made["pins"] = dict(self.version_set.pins)
        return made


def write(folder: Path, rows: Sequence[Row], runners: Mapping[str, Sequence[str]]) -> None:
    """Add sets to the folder's list, or replace those of the same names. Whole or not at all."""
    path = folder / PACK
    document = tomlkit.parse(path.read_text(encoding="utf-8")) if path.exists() else tomlkit.document()
    for name in ("sets", "runner"):
        document.setdefault(name, tomlkit.table(is_super_table=name == "sets"))
    for row in rows:
        document["sets"][row.version_set.key] = row.table
    for python, files in runners.items():
        document["runner"][python] = sorted(files)
    sets.save(document, path)


def wheel(path: Path, *, at: str) -> tuple[str, str, Path]:
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UserError(f"{at}: {error}") from error
    if not path.is_file():
        raise UserError(f"{at}: {path.name} is not in {path.parent}")
    return name, str(version), path


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
