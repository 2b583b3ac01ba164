"""Reads and writes locks: every distribution of a version set with its hashes, without index URLs.

A lock therefore works with any mirror, and its hashes guarantee that every mirror serves the same files.
``locking`` resolves new ones.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
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
LOCKS: Final = 128  # remembered, because commands ask for a lock again for every cell; more than are packaged

# Hosts with several GPUs run Linux on x86-64, and glibc 2.28 is the oldest that all wheels of the newest sets support.
# A lock for one platform can be compared with the installed versions.
PLATFORM: Final = "x86_64-manylinux_2_28"

PINNED: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Lock:
    """A version set's distributions with their hashes, as ``uv pip sync --require-hashes`` reads them."""

    version_set: VersionSet
    text: str

    @cached_property
    def digest(self) -> str:
        """Hash of the Python version and the distributions, whatever their order; comments do not count."""
        return digest_of(self.version_set.python, self.text)

    @cached_property
    def versions(self) -> Mapping[str, str]:
        return versions_in(self.text)

    @property
    def stale(self) -> bool:
        """True if the set's pins or date have changed since the lock was resolved."""
        return header(self.version_set) not in self.text or not all(
            self.meets(Requirement(line)) for line in self.version_set.requirements
        )

    def meets(self, requirement: Requirement) -> bool:
        version = self.versions.get(canonicalize_name(requirement.name))
        return version is not None and requirement.specifier.contains(version, prereleases=True)


@lru_cache(maxsize=LOCKS)
def digest_of(python: str, text: str) -> str:
    content = "\n".join([f"python {python}", *sorted(statements(text))])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


@lru_cache(maxsize=LOCKS)
def versions_in(text: str) -> Mapping[str, str]:
    return MappingProxyType({canonicalize_name(name): version for name, version in PINNED.findall(text)})


def statements(text: str) -> list[str]:
    """The lock's pins, each on one line with its hashes in order."""
    joined = text.replace("\\\n", " ")
    rows = (line.partition(" #")[0].split() for line in joined.splitlines() if not line.startswith("#"))
    return [" ".join([words[0], *sorted(words[1:])]) for words in rows if words]


def distribution(statement: str) -> str:
    """Normalised name of the distribution that a statement of a lock pins."""
    return str(canonicalize_name(statement.partition("==")[0]))


def header(version_set: VersionSet) -> str:
    return f"# ftmatrix lock of {version_set.key}: Python {version_set.python}, as of {version_set.as_of}, {PLATFORM}"


def read(version_set: VersionSet, *, folder: Path = PACKAGED) -> Lock | None:
    """The stored lock, which may be stale; None if there is none."""
    path = path_of(version_set, folder)
    try:
        return Lock(version_set=version_set, text=path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the lock cannot be read ({error}); remove it, and it is resolved again") from error


def pins_only(log: str) -> str:
    """The output of uv without its warnings, which may name files and hosts of this machine."""
    pin_lines = (line for line in log.splitlines() if re.match(r"[A-Za-z0-9][^\s]*==|\s+--hash=", line))
    return "\n".join(pin_lines) + "\n"


def write(lock: Lock, *, folder: Path = PACKAGED) -> Path:
    path = path_of(lock.version_set, folder)
    new = path.with_name(path.name + ".new")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new.write_text(lock.text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise UserError(
            f"{path}: the lock cannot be stored ({error.strerror}); copy versions.toml to a writable folder and name"
            " the copy with --versions"
        ) from error
    return path


def path_of(version_set: VersionSet, folder: Path) -> Path:
    return folder / f"{version_set.key}.txt"


def locks_folder(versions: Path) -> Path:
    """The folder of a versions file's locks."""
    return versions.with_name("locks")


def same_version(one: str, other: str) -> bool:
    """True for versions that differ at most in their build, such as 2.8.0 and 2.8.0+cpu."""
    return Version(one).public == Version(other).public
