"""Decides from the facts of a torch build whether it can run on a driver and a GPU, without running it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cases.runtime.gpu_pool import Pool

# The first driver of each major version of CUDA runs all of its minor versions, and all majors before.
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
FIRST_DRIVER = {11: "450.80", 12: "525.60", 13: "580.65"}
ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)([af]?)")


def why_unusable(facts: Mapping[str, Any], pool: Pool) -> str:
    """The reason why an environment's build of torch cannot run on the GPUs of a pool; empty if it can."""
    if not facts["torch_cuda"]:
        return f"torch {facts['torch_build']} is a build without CUDA"
    too_old = why_driver_is_too_old(facts["torch_cuda"], runs=pool.source.cuda, driver=pool.source.version)
    architectures = str(facts.get("torch_architectures", "")).split()
    reasons = (why_no_kernels(architectures, gpu.capability) for gpu in pool.gpus)
    return too_old or next(filter(None, reasons), "")


def why_driver_is_too_old(build: str, *, runs: str, driver: str) -> str:
    """The reason why a build for CUDA ``build`` cannot start on a driver that runs up to ``runs``; empty if it may.

    ``runs`` also reflects a compatibility package that adds a newer ``libcuda`` to an old driver.
    """
    if not build or not runs or major(build) <= major(runs):
        return ""
    first = FIRST_DRIVER.get(major(build))
    needed = f"driver {first} or newer" if first else "a newer driver"
    return f"this build of torch is for CUDA {build} and needs {needed}: driver {driver} runs CUDA {runs} and older"


def major(version: str) -> int:
    return int(version.partition(".")[0])


def why_no_kernels(architectures: Iterable[str], capability: str) -> str:
    """The reason why a build has no kernel for a GPU; empty if it has.

    ``architectures`` are those of the build, e.g. ``sm_80 sm_90 compute_90``; ``capability`` is a GPU's, e.g. ``9.0``.
    Empty, too, if one of the two is unknown.
    """
    built_for = list(architectures)
    if not built_for or not capability or any(runs_on(each, capability) for each in built_for):
        return ""
    return f"this build of torch has no kernels for sm_{capability.replace('.', '')}, only for {', '.join(built_for)}"


def runs_on(architecture: str, capability: str) -> bool:
    """Return whether code for an architecture runs on a GPU, according to the CUDA programming guide.

    Machine code (``sm``) runs on its major version, from its minor version on. Code that the driver compiles
    (``compute``) runs on everything newer; an ``a`` binds it to one version.
    """
    parts = ARCHITECTURE.fullmatch(architecture)
    if parts is None:
        return True  # unknown architectures get the benefit of the doubt
    kind, digits, bound = parts.groups()
    built, gpu = (int(digits[:-1]), int(digits[-1])), tuple(map(int, capability.split(".")))
    if bound == "a":
        return built == gpu
    if kind == "compute" and not bound:
        return built <= gpu
    return built[0] == gpu[0] and built[1] <= gpu[1]
