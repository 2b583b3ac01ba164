"""The devices that cells run on, by the names that ``--device`` gives them."""

from __future__ import annotations

CPU = "cpu"  # ranks are connected by gloo
CUDA = "cuda"  # each rank has a GPU of its own; ranks are connected by NCCL
CUDA_GLOO = "cuda-gloo"  # all ranks of a cell share one GPU and are connected by gloo, as NCCL refuses two ranks on one
NAMES = (CPU, CUDA, CUDA_GLOO)


def uses_gpus(device: str) -> bool:
    return device != CPU


def gpus_of(device: str, ranks: int) -> int:
    """The number of GPUs that a cell with so many ranks needs."""
    return {CPU: 0, CUDA: ranks, CUDA_GLOO: 1}[device]
