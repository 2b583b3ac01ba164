"""Describes the machine of a run: its CPU, its GPUs and their driver."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from cases.runtime import gpu_pool as pools
from cases.runtime.nvml import UnavailableError
from cases.space import devices
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.runtime.gpu_pool import Pool


def cores() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def hardware(device: str, *, open_pool: Callable[[], Pool] = pools.pool) -> str:
    """The hardware in words, e.g. ``cpu: AMD EPYC 9R14 x 2``; results are comparable where it is equal.

    Raises:
        UserError: the device needs GPUs and this process can use none.
    """
    if device == devices.CPU:
        return f"cpu: {cpu_name()} x {cores()}"
    found = gpus(open_pool).gpus
    kind = "MIG slice of " if found[0].is_slice else ""
    count = 1 if device == devices.CUDA_GLOO else len(found)  # other GPUs take no part in a cell
    return f"{device}: {kind}{found[0].name} x {count}"


def gpus(open_pool: Callable[[], Pool] = pools.pool) -> Pool:
    """The GPUs that this process may use, at least one.

    Raises:
        UserError: there is none, or the driver does not answer.
    """
    why = why_no_gpu(open_pool)
    if why:
        raise UserError(f"--device cuda: {why}; use --device cpu")
    return open_pool()


def why_no_gpu(open_pool: Callable[[], Pool] = pools.pool) -> str:
    """The reason why this process can use no GPU; empty if it can use one."""
    try:
        pool = open_pool()
    except UnavailableError as error:
        return str(error)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if pool.gpus:
        return ""
    return "this machine has no NVIDIA GPU" if hidden is None else f"CUDA_VISIBLE_DEVICES={hidden} leaves no GPU"


def facts(device: str, *, open_pool: Callable[[], Pool] = pools.pool) -> dict[str, str | int]:
    """Facts about the machine that reports show.

    Raises:
        UserError: the device needs GPUs, and there is none or the driver does not answer.
    """
    facts: dict[str, str | int] = {"os": platform.platform(), "cpu": cpu_name(), "cores": cores()}
    return facts | facts_of_gpus(gpus(open_pool)) if devices.uses_gpus(device) else facts


def facts_of_gpus(pool: Pool) -> dict[str, str | int]:
    try:
        driver = {"driver": pool.source.version, "driver_cuda": pool.source.cuda}
    except UnavailableError as error:
        raise UserError(f"--device cuda: {error}; use --device cpu") from None
    return {"gpu": pool.gpus[0].name, "gpus": len(pool.gpus), **driver}


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
