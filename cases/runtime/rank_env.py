"""The environment of every rank, however it is started: nothing of it changes what a case computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# One thread per rank (ranks share the cores), loopback only, nothing is downloaded.
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # the other way to count GPUs initialises the driver
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
# What NCCL need not set up for one small cell on one host, unless the caller says otherwise: InfiniBand, and more
# channels than messages of a few kilobytes use.
NCCL = {"NCCL_IB_DISABLE": "1", "NCCL_MAX_NCHANNELS": "2"}


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment, and ours over it."""
    return {**NCCL, **environ, **VARIABLES}


def nccl_settings(environ: Mapping[str, str]) -> str:
    """What NCCL is told by its environment, as ``NCCL_IB_DISABLE=1``; not where it logs."""
    told = sorted(name for name in environ if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG"))
    return " ".join(f"{name}={environ[name]}" for name in told)
