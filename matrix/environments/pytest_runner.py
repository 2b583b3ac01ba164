"""The pytest that cells run under: one folder per Python version, shared by all environments.

A ``.pth`` file appends the folder to an environment's ``sys.path``, so the environment's own packages win.
"""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from matrix.environments import leases
from matrix.environments.environment import lease_path, site_packages
from matrix.environments.integrity import damaged_packages
from matrix.errors import UserError
from matrix.versions.uv import blame_machine, reason

if TYPE_CHECKING:
    from matrix.versions.uv import Uv

RUNNER: Final = Path(__file__).with_name("runner.txt")
PTH: Final = "zz_ftmatrix_runner.pth"  # Python reads .pth files in order of name: the last cannot hide anything


def runner_digest() -> str:
    return sha256(RUNNER.read_bytes()).hexdigest()[:12]


def runner_distributions(python: str) -> list[str]:
    """Normalised names of pytest and its dependencies for a Python such as ``3.11``."""
    lines = RUNNER.read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalpha()]
    version = {"python_version": python, "python_full_version": f"{python}.0"}
    return [canonicalize_name(pin.name) for pin in pins if pin.marker is None or pin.marker.evaluate(version)]


def runner_folder(root: Path, *, cache: Path, uv: Uv) -> Path:
    """The folder with pytest for an environment's Python. Installs it if it is missing, incomplete or damaged.

    Raises:
        UserError: pytest cannot be installed.
    """
    version = site_packages(root).parent.name
    folder = cache / "runner" / f"{runner_digest()}-{version}"
    lease = leases.acquire_exclusive(lease_path(folder))
    try:
        if damaged_packages(folder, runner_distributions(version.removeprefix("python"))):
            install_runner(folder, root, uv=uv)
    finally:
        lease.release()
    return folder


def install_runner(folder: Path, root: Path, *, uv: Uv) -> None:
    new = folder.with_name(f"{folder.name}.new")
    remove_folder(new)
    result = uv.pip("install", "--python", root, "--target", new, "--require-hashes", "-r", RUNNER)
    if result.exit_code != 0:
        blame_machine(result, doing="installing pytest for the environments")
        raise UserError(f"pytest could not be installed for the environments: {reason(result.log)}")
    remove_folder(folder)
    new.rename(folder)


def remove_folder(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)
