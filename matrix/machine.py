"""The machine a run happens on, as far as results depend on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix import processes
from matrix.errors import UserError

if TYPE_CHECKING:
    from matrix.processes import Call

SMI: Final = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


def cores() -> int:
    """CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def hardware(device: str, *, call: Call = processes.call) -> str:
    """What results may be compared across, e.g. ``cpu: AMD EPYC 9R14 x 2`` or ``cuda: NVIDIA H200 x 2``.

    Raises:
        UserError: GPUs are asked for and there are none.
    """
    if device == "cpu":
        return f"cpu: {cpu_name()} x {cores()}"
    names = [name for name, _ in gpus(call)]
    return f"cuda: {names[0]} x {len(names)}"


def gpus(call: Call = processes.call) -> list[tuple[str, str]]:
    """Name and driver version of each GPU.

    Raises:
        UserError: there is none, or the driver does not answer.
    """
    try:
        done = call(SMI, timeout_s=30)
        found = [tuple(line.split(", ")) for line in done.log.splitlines()] if done.exit_code == 0 else []
    except FileNotFoundError:
        found = []
    if not found:
        raise UserError("--device cuda: this machine shows no NVIDIA GPU (nvidia-smi): use --device cpu")
    return [(name, driver) for name, driver, *_ in found]


def facts(device: str, *, call: Call = processes.call) -> dict[str, str | int]:
    found: dict[str, str | int] = {"os": platform.platform(), "cpu": cpu_name(), "cores": cores()}
    if device == "cuda":
        listed = gpus(call)
        found |= {"gpu": listed[0][0], "gpus": len(listed), "driver": listed[0][1]}
    return found


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
