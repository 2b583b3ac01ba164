"""Peak memory of GPUs: of each rank, whatever became of the cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cases.runtime.judge import RankEnd

MIB = 2**20
ALLOCATED, RESERVED = "peak_cuda_mib", "peak_cuda_reserved_mib"


def peaks(device: Any) -> dict[str, float]:
    """What tensors held at most on this process's device, and what the allocator had taken for them, in MiB.

    Nothing where the context is broken: after an illegal access the question may raise as well.
    """
    import torch

    try:
        held, taken = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    except RuntimeError:
        return {}
    return {ALLOCATED: round(held / MIB, 3), RESERVED: round(taken / MIB, 3)}


def by_rank(ends: Iterable[RankEnd]) -> dict[str, float]:
    """The peaks of each rank, as ``peak_cuda_mib_rank_1``; of several processes of a rank, the highest."""
    found: dict[str, float] = {}
    for end in ends:
        for name in (name for name in (ALLOCATED, RESERVED) if name in end.metrics):
            key = f"{name}_rank_{end.number}"
            found[key] = max(found.get(key, 0.0), end.metrics[name])
    return found
