"""Reads and writes locks: every distribution of a version set with its hashes, without index URLs.

A lock therefore works with any mirror, and its hashes guarantee that every mirror serves the same files.
``locking`` resolves new ones.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from matrix.errors import UserError
from matrix.versions import sets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matrix.versions.sets import VersionSet

PACKAGED: Final = sets.PACKAGED.with_name("locks")
RESOLVE_LIMIT_S: Final = 600.0

# Where several GPUs of one host are: Linux on x86-64. glibc 2.28 is the oldest that every wheel of the newest sets
# accepts, and everything newer accepts them, too. A lock for one platform can be checked against what got installed.
PLATFORM: Final = "x86_64-manylinux_2_28"

PINNED: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Lock:
    """What ``uv pip sync --require-hashes`` makes the set's environment from."""

    version_set: VersionSet
    text: str

    @cached_property
    def digest(self) -> str:
        """Of what gets installed: comments and order do not count, the interpreter does."""
        content = "\n".join([f"python {self.version_set.python}", *sorted(statements(self.text))])
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    @cached_property
    def versions(self) -> Mapping[str, str]:
        return {canonicalize_name(name): version for name, version in PINNED.findall(self.text)}

    @property
    def stale(self) -> bool:
        """Made from other pins, or as of another date, than the set has now."""
        return header(self.version_set) not in self.text or not all(
            self.holds(Requirement(line)) for line in self.version_set.requirements
        )

    def holds(self, requirement: Requirement) -> bool:
        version = self.versions.get(canonicalize_name(requirement.name))
        return version is not None and requirement.specifier.contains(version, prereleases=True)


def statements(text: str) -> list[str]:
    """The lock's requirements, each on one line with its hashes in order."""
    joined = text.replace("\\\n", " ")
    kept = (line.partition(" #")[0].split() for line in joined.splitlines() if not line.startswith("#"))
    return [" ".join([words[0], *sorted(words[1:])]) for words in kept if words]


def distribution(statement: str) -> str:
    """Normalised name of the distribution that a statement of a lock pins."""
    return str(canonicalize_name(statement.partition("==")[0]))


def header(version_set: VersionSet) -> str:
    return f"# ftmatrix lock of {version_set.key}: Python {version_set.python}, as of {version_set.as_of}, {PLATFORM}"


def read(version_set: VersionSet, *, folder: Path = PACKAGED) -> Lock | None:
    """The lock as it lies in the folder, stale or not."""
    path = path_of(version_set, folder)
    try:
        return Lock(version_set=version_set, text=path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the lock cannot be read ({error}); remove it, and it is made again") from error


def pins_only(log: str) -> str:
    """Without uv's warnings, which may name files and hosts of this machine."""
    kept = (line for line in log.splitlines() if re.match(r"[A-Za-z0-9][^\s]*==|\s+--hash=", line))
    return "\n".join(kept) + "\n"


def write(made: Lock, *, folder: Path = PACKAGED) -> Path:
    path = path_of(made.version_set, folder)
    new = path.with_name(path.name + ".new")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new.write_text(made.text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise UserError(
            f"{path}: the lock cannot be stored ({error.strerror}); copy versions.toml to a folder of yours and name"
            " the copy: --versions FILE"
        ) from error
    return path


def path_of(version_set: VersionSet, folder: Path) -> Path:
    return folder / f"{version_set.key}.txt"


def folder_beside(versions: Path) -> Path:
    """The locks of a versions file: one folder beside it, packaged or the user's own."""
    return versions.with_name("locks")


def same_version(one: str, other: str) -> bool:
    """Equal but for the build: 2.8.0 and 2.8.0+cpu."""
    return Version(one).public == Version(other).public
