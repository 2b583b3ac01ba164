"""Peak GPU memory of each rank, also of ranks that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cases.runtime.rank_state import RankState

MIB = 2**20
ALLOCATED, RESERVED = "peak_cuda_mib", "peak_cuda_reserved_mib"


def peaks(device: Any) -> dict[str, float]:
    """Peak memory in MiB that tensors occupied, and that the allocator reserved, on this process's device.

    Empty if the CUDA context is broken: after an illegal access these calls may raise as well.
    """
    import torch

    try:
        allocated, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    except RuntimeError:
        return {}
    return {ALLOCATED: round(allocated / MIB, 3), RESERVED: round(reserved / MIB, 3)}


def by_rank(ranks: Iterable[RankState]) -> dict[str, float]:
    """The peaks of each rank, e.g. ``peak_cuda_mib_rank_1``; the highest if a rank had several processes."""
    found: dict[str, float] = {}
    for rank in ranks:
        for name in (name for name in (ALLOCATED, RESERVED) if name in rank.metrics):
            key = f"{name}_rank_{rank.number}"
            found[key] = max(found.get(key, 0.0), rank.metrics[name])
    return found
