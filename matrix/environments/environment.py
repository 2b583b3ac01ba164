"""An installed environment, and the folders that hold environments."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import platformdirs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.environments.leases import Lease, LeaseGroup

PYTHON_VARIABLES: Final = frozenset(
    {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "__PYVENV_LAUNCHER__"}
)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A complete environment. No run evicts it before its lease is released.

    Attributes:
        key: the version set.
        lock: digest of the lock.
        backend: the build of torch.
        root: the virtual environment.
        installed: version by normalised package name.
        notes: remarks for the user on how it was installed.
        lease: a shared lease.
    """

    key: str
    lock: str
    backend: str
    root: Path
    installed: Mapping[str, str]
    notes: tuple[str, ...] = ()
    lease: Lease | LeaseGroup = field(repr=False, compare=False)

    @property
    def python(self) -> Path:
        return self.root / "bin" / "python"

    @property
    def standard_library(self) -> Path | None:
        """The standard library's folder, derived from ``home`` in ``pyvenv.cfg``; None if that is missing."""
        config = self.root / "pyvenv.cfg"
        lines = config.read_text(encoding="utf-8").splitlines() if config.exists() else []
        settings = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
        home = settings.get("home", "")
        return Path(home).parent / "lib" / site_packages(self.root).parent.name if home else None

    def release(self) -> None:
        self.lease.release()

    def variables(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Variables for processes of the environment, without those that configure the caller's Python.

        Python compiles modules at their first import, which then takes 12 s instead of 5. Compiling everything at
        installation takes as long, and most of it is never imported.
        """
        outer = os.environ if environ is None else environ
        variables = {name: value for name, value in outer.items() if name not in PYTHON_VARIABLES}
        path = os.pathsep.join([str(self.root / "bin"), outer.get("PATH", os.defpath)])
        return {**variables, "PATH": path, "VIRTUAL_ENV": str(self.root), "PYTHONNOUSERSITE": "1"}


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of environments, uv's cache, timings and digests: FTMATRIX_CACHE, or a folder in the user's cache."""
    chosen = (os.environ if environ is None else environ).get("FTMATRIX_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_cache_path("ftmatrix")


def site_packages(root: Path) -> Path:
    return next(root.glob("lib/python3.*/site-packages"))


def lease_path(root: Path) -> Path:
    """The lock file of a folder. It lies outside the folder, because a deleted lock file can be held twice."""
    return root.with_name(f"{root.name}.lock")
