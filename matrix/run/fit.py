"""Checks, before installation, that this machine can run the cells of a set."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cases.runtime import torch_builds
from cases.runtime.nvml import UnavailableError
from cases.space import devices
from matrix.errors import UserError
from matrix.keys import local_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.runtime.gpu_pool import Pool
    from matrix.versions.locks import Lock

NO_CUDA = "cpu"  # in place of a version: the build has none
ELSEWHERE = "`--device both` runs such cells on the CPU, `--device cuda-gloo` with all ranks on one GPU"
RUNTIME = re.compile(r"nvidia-cuda-runtime(-cu\d+)?")


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Decides which cells of one set a device can run now. Without a pool, cells run on the CPU and all can run.

    ``blocker`` is the reason why no cell of the set can run. ``occupied`` describes the processes of others on a GPU,
    by the GPU's UUID.
    """

    pool: Pool | None = None
    device: str = devices.CUDA
    blocker: str = ""
    occupied: Mapping[str, str] = field(default_factory=dict)

    def shortage(self, ranks: int) -> str:
        """The reason why a cell with this many ranks cannot run; empty if it can."""
        if self.blocker or self.pool is None:
            return self.blocker
        count = devices.gpus_of(self.device, ranks)
        why = self.pool.shortage(count, self.occupied)
        return f"{why}; {ELSEWHERE}" if self.pool.shortage(count) else why


def check_gpus(lock: Lock, backend: str, pool: Pool | None, device: str = devices.CUDA) -> Fit:
    """Check the driver and the GPUs for one set with one build of torch. Waits for GPUs that are about to be free.

    Raises:
        UserError: the driver stopped answering.
    """
    if pool is None:
        return Fit()
    build = cuda_of(lock, backend)
    if build == NO_CUDA:
        return Fit(pool=pool, blocker="this build of torch has no CUDA; use --device cpu or another --torch-backend")
    try:
        blocker = torch_builds.why_driver_is_too_old(build, runs=pool.source.cuda, driver=pool.source.version)
        return Fit(pool=pool, device=device, blocker=blocker, occupied={} if blocker else pool.occupied())
    except UnavailableError as error:
        raise UserError(f"the GPU driver does not answer ({error}); continue with --resume once it does") from None


def cuda_of(lock: Lock, backend: str) -> str:
    """The CUDA version of a build of torch, e.g. ``12.8``; empty if neither backend nor lock names one."""
    if backend == NO_CUDA:
        return NO_CUDA
    label = local_version(lock.versions.get("torch", ""))
    named = re.match(r"cu(\d+)(\d)(?!\d)", backend) or re.match(r"cu(\d+)(\d)(?!\d)", label)
    if named:
        return ".".join(named.groups())
    if label.startswith(NO_CUDA):
        return NO_CUDA
    runtime = next((version for name, version in lock.versions.items() if RUNTIME.fullmatch(name)), "")
    return ".".join(runtime.split(".")[:2])
