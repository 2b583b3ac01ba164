"""Which build of torch: the one the lock names, or the CPU's or a CUDA's of the same version.

uv knows where those builds are; nothing here does.
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

LOCKED: Final = "pypi"  # what the lock says, from the configured index
SYSTEM: Final = "system"  # what is there: nothing of torch is installed
PROBE_LIMIT_S: Final = 20.0
FAMILY: Final = re.compile(r"torch|triton|pytorch-triton.*|nvidia-.*|cuda-.*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The build of torch that gets installed, and what had to be said about the choice."""

    name: str = LOCKED
    notes: tuple[str, ...] = ()

    @property
    def locked(self) -> bool:
        return self.name == LOCKED


def has_gpu() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def checked(asked: str) -> str:
    if not re.fullmatch(r"auto|cpu|pypi|cu\d{2,3}", asked):
        raise UserError(f"--torch-backend {asked}: expected auto, cpu, pypi, or a CUDA such as cu128")
    return asked


def choose(asked: str, *, uv: Uv, gpu: Callable[[], bool] = has_gpu) -> Backend:
    """The backend of a run: the wish, if its index can be reached. Whether it has a lock's torch, installing finds."""
    if checked(asked) == "auto":
        # With a GPU, the build on the configured index is the one that users of these versions have.
        asked = LOCKED if gpu() else "cpu"
    if asked == LOCKED or reachable(asked, uv=uv):
        return Backend(name=asked)
    return Backend(
        notes=(f"the index of torch's {asked} builds cannot be reached; torch is the configured index's build",)
    )


def reachable(name: str, *, uv: Uv) -> bool:
    """Cheap: it asks for one package's metadata, and does not insist."""
    done = uv.compile(
        ("torch",),
        *("--torch-backend", name, "--no-deps", "--python-platform", PLATFORM),
        timeout_s=PROBE_LIMIT_S,
        extra={"UV_HTTP_TIMEOUT": "8", "UV_HTTP_RETRIES": "0"},
    )
    return done.exit_code == 0


def in_torch_family(distribution: str) -> bool:
    """Torch, and what its build brings: another build brings others."""
    return FAMILY.fullmatch(distribution) is not None
