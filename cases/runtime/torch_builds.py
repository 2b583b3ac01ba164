"""Whether a build of torch can run on a driver and on a GPU, by what it was built with: nothing is tried."""

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


def unusable(facts: Mapping[str, Any], here: Pool) -> str:
    """Why the build of torch that an environment tells of can run nothing on the GPUs here; empty if it can."""
    if not facts["torch_cuda"]:
        return f"torch {facts['torch_build']} is a build without CUDA"
    too_old = older_driver(facts["torch_cuda"], runs=here.source.cuda, driver=here.source.version)
    architectures = str(facts.get("torch_architectures", "")).split()
    lacking = (no_kernels(architectures, gpu.capability) for gpu in here.gpus)
    return too_old or next(filter(None, lacking), "")


def older_driver(build: str, *, runs: str, driver: str) -> str:
    """Why a build for CUDA ``build`` starts on no GPU of a driver that runs CUDA up to ``runs``; empty if it may.

    A package that brings a newer ``libcuda`` to an old driver shows in ``runs``.
    """
    if not build or not runs or major(build) <= major(runs):
        return ""
    first = FIRST_DRIVER.get(major(build))
    needed = f"driver {first} or newer" if first else "a newer driver"
    return f"this build of torch is for CUDA {build} and needs {needed}: driver {driver} runs CUDA {runs} and older"


def major(version: str) -> int:
    return int(version.partition(".")[0])


def no_kernels(architectures: Iterable[str], capability: str) -> str:
    """Why a build for these architectures (``sm_80 sm_90 compute_90``) has nothing to run on a GPU; empty if it has.

    ``capability`` is the GPU's, e.g. ``9.0``. Empty as well where one of the two is not known.
    """
    built_for = list(architectures)
    if not built_for or not capability or any(runs_on(each, capability) for each in built_for):
        return ""
    return f"this build of torch has no kernels for sm_{capability.replace('.', '')}, only for {', '.join(built_for)}"


def runs_on(architecture: str, capability: str) -> bool:
    """As the CUDA programming guide has it: machine code (``sm``) runs on its major version from its minor on.

    What is compiled on the machine (``compute``) runs on everything newer; an ``a`` binds it to one version.
    """
    parts = ARCHITECTURE.fullmatch(architecture)
    if parts is None:
        return True  # a kind that is not known here: nothing is held against it
    kind, digits, bound = parts.groups()
    made, there = (int(digits[:-1]), int(digits[-1])), tuple(map(int, capability.split(".")))
    if bound == "a":
        return made == there
    if kind == "compute" and not bound:
        return made <= there
    return made[0] == there[0] and made[1] <= there[1]
