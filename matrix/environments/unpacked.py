"""Installs single releases of packages, each in a folder of its own that environments link to."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from cases.space.verdict import Phase
from matrix.environments import leases
from matrix.environments.environment import lease_path
from matrix.environments.integrity import damaged_packages
from matrix.environments.pytest_runner import remove_folder
from matrix.evidence import Evidence
from matrix.versions.backends import in_torch_family
from matrix.versions.locks import digest_of, distribution
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.versions.uv import Uv


def unpack(
    statement: str, *, root: Path | str, python: str, parent: Path, uv: Uv, make_room: Callable[[], object] = tuple
) -> Path | Evidence:
    """The folder of one package as a lock pins it, from the cache or newly installed.

    Args:
        statement: a line of a lock, with hashes.
        root: an environment with the interpreter, or its version.
        python: its version, such as ``3.11``.
        parent: the folder of such folders.
        uv: the command that installs.
        make_room: called before an installation.

    Raises:
        UserError: the machine is at fault: no network, a full disk.
    """
    name = distribution(statement)
    folder = parent / f"{name}-{digest_of(python, statement)}"
    lease = leases.acquire_exclusive(lease_path(folder))
    try:
        if folder.is_dir() and not damaged_packages(folder, [name]):
            return folder
        make_room()
        new = folder.with_name(f"{folder.name}.new")
        remove_folder(new)
        hashed = ("--require-hashes",) if "--hash" in statement else ()
        once = ("--no-cache",) if in_torch_family(name) else ()  # gigabytes, which nobody needs again
        with uv.requirements_file([statement]) as path:
            result = uv.pip("install", "--python", root, "--target", new, "--no-deps", *once, *hashed, "-r", path)
        if result.exit_code == 0:
            remove_folder(folder)
            new.rename(folder)
            return folder
        remove_folder(new)
    finally:
        lease.release()
    blame_machine(result, doing=f"installing {name}")
    return Evidence(phase=Phase.INSTALL, reason=reason(result.log), exit_code=result.exit_code, log=result.log)


def remove(folders: set[Path], *, parent: Path) -> None:
    """Remove the folders that lie in ``parent``, with their lock files."""
    for folder in folders:
        if folder.parent == parent:
            shutil.rmtree(folder, ignore_errors=True)
            lease_path(folder).unlink(missing_ok=True)
