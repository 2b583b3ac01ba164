"""Chooses the build of torch: the lock's, or the same version for the CPU or for a CUDA release.

uv knows the indexes of those builds.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix.errors import UserError
from matrix.versions.locks import PLATFORM

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.versions.uv import Uv

LOCKED: Final = "pypi"  # the build in the lock, from the configured index
SYSTEM: Final = "system"  # the host's torch: none is installed
PROBE_LIMIT_S: Final = 20.0
FAMILY: Final = re.compile(r"torch|triton|pytorch-triton.*|nvidia-.*|cuda-.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The build of torch to install, and notes for the user on the choice."""

    name: str = LOCKED
    notes: tuple[str, ...] = ()

    @property
    def locked(self) -> bool:
        return self.name == LOCKED


def has_gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def checked_name(name: str) -> str:
    if not re.fullmatch(r"auto|cpu|pypi|cu\d{2,3}", name):
        raise UserError(f"--torch-backend {name}: expected auto, cpu, pypi, or a CUDA release such as cu128")
    return name


def choose(name: str, *, uv: Uv, gpu: Callable[[], bool] = has_gpu) -> Backend:
    """The backend of a run: the named one if its index can be reached, else the lock's build with a note.

    Whether the index has the lock's version of torch turns out at installation.

    Raises:
        UserError: the name is unknown.
    """
    if checked_name(name) == "auto":
        # With a GPU, users of these versions have the build on the configured index.
        name = LOCKED if gpu() else "cpu"
    if name == LOCKED or can_reach(name, uv=uv):
        return Backend(name=name)
    return Backend(
        notes=(f"the index of torch's {name} builds cannot be reached; torch is the configured index's build",)
    )


def can_reach(name: str, *, uv: Uv) -> bool:
    """True if the backend's index answers a request for torch's metadata. One short attempt, without retries."""
    result = uv.compile(
        ("torch",),
        *("--torch-backend", name, "--no-deps", "--python-platform", PLATFORM),
        timeout_s=PROBE_LIMIT_S,
        extra={"UV_HTTP_TIMEOUT": "8", "UV_HTTP_RETRIES": "0"},
    )
    return result.exit_code == 0


def in_torch_family(distribution: str) -> bool:
    """True for torch and the packages that differ between its builds."""
    return FAMILY.fullmatch(distribution) is not None
