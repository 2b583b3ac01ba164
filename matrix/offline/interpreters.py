"""Finds interpreters that can travel with a pack, and the files of them that a target needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix import processes
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.processes import CommandRunner
    from matrix.versions.uv import Uv

START_LIMIT_S: Final = 60.0
SYSTEM_PREFIXES: Final = (Path("/usr"), Path("/usr/local"), Path("/"))
# Of the installation: tests, GUI toolkits, static libraries and compiled files are most of its size.
LEFT_OUT: Final = frozenset({"__pycache__", "test", "tests", "idlelib", "turtledemo", "tkinter", "site-packages"})
LEFT_OUT_SUFFIXES: Final = (".a", ".pyc")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedPython:
    """An interpreter to pack. ``version`` is a minor version; ``prefix`` its installation, also on the target."""

    version: str
    prefix: Path

    def files(self) -> Iterator[Path]:
        """Files and links of the installation that a target needs, sorted."""
        for path in sorted(self.prefix.rglob("*")):
            parts = path.relative_to(self.prefix).parts
            is_needed = LEFT_OUT.isdisjoint(parts) and path.suffix not in LEFT_OUT_SUFFIXES
            if is_needed and not is_configuration(parts) and (path.is_symlink() or path.is_file()):
                yield path


def is_configuration(parts: tuple[str, ...]) -> bool:
    """True for the build configuration and the man pages."""
    return parts[0] == "share" or any(each.startswith("config-") for each in parts)


def find(version: str, *, uv: Uv, call: CommandRunner = processes.call) -> PackedPython:
    """Find the interpreter of a minor version that uv would use.

    Raises:
        UserError: there is none, or it is the system's, which is no folder of its own.
    """
    found = uv("python", "find", "--no-project", version)
    if found.exit_code != 0:
        raise UserError(f"--interpreter: no working Python {version} found; install it")
    python = found.log.strip().splitlines()[-1]
    result = call([python, "-I", "-S", "-c", "import sys; print(sys.base_prefix)"], timeout_s=START_LIMIT_S)
    if result.exit_code != 0:
        raise UserError(f"--interpreter: {python} does not start; install another Python {version}")
    prefix = Path(result.log.strip())
    if prefix in SYSTEM_PREFIXES:
        raise UserError(
            f"--interpreter: Python {version} belongs to the system ({python}), so that it cannot be packed;"
            " install one with pyenv or `uv python install`"
        )
    return PackedPython(version=version, prefix=prefix)
