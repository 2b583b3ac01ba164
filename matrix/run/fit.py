"""Checks, before installation, that this machine can run the cells of a set."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cases.runtime import torch_builds
from cases.runtime.nvml import UnavailableError
from matrix.errors import UserError
from matrix.keys import local_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.runtime.gpu_pool import Pool
    from matrix.versions.locks import Lock

NO_CUDA = "cpu"  # in place of a version: the build has none
RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What the GPUs can do for the cells of one set at this moment; without a pool, nothing is asked of GPUs.

    ``whole`` is why no cell of the set can run, ``occupied`` which GPUs others' work is on, by UUID.
    """

    pool: Pool | None = None
    whole: str = ""
    occupied: Mapping[str, str] = field(default_factory=dict)

    def lacks(self, ranks: int) -> str:
        """The reason why a cell of so many ranks cannot run here; empty if it can."""
        return self.whole or (self.pool.shortage(ranks, self.occupied) if self.pool else "")


def look(lock: Lock, backend: str, pool: Pool | None) -> Fit:
    """At the driver and the GPUs, for one set with one build of torch. Waits a while for what others leave behind.

    Raises:
        UserError: the driver answers no more.
    """
    if pool is None:
        return Fit()
    build = cuda_of(lock, backend)
    if build == NO_CUDA:
        return Fit(pool=pool, whole="this build of torch has no CUDA: --device cpu, or another --torch-backend")
    try:
        whole = torch_builds.why_driver_is_too_old(build, runs=pool.source.cuda, driver=pool.source.version)
        return Fit(pool=pool, whole=whole, occupied={} if whole else pool.occupied())
    except UnavailableError as error:
        raise UserError(f"the GPUs cannot be asked ({error}); --resume goes on when they can") from None


def cuda_of(lock: Lock, backend: str) -> str:
    """The CUDA that the build of torch is for, e.g. ``12.8``; empty where lock and backend do not tell."""
    if backend == NO_CUDA:
        return NO_CUDA
    label = local_version(lock.versions.get("torch", ""))
    named = re.match(r"cu(\d+)(\d)(?!\d)", backend) or re.match(r"cu(\d+)(\d)(?!\d)", label)
    if named:
        return ".".join(named.groups())
    if label.startswith(NO_CUDA):
        return NO_CUDA
    brought = next((version for name, version in lock.versions.items() if RUNTIME.fullmatch(name)), "")
    return ".".join(brought.split(".")[:2])
