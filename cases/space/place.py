"""The place of a rank: its number, the number of ranks, and its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cases.space import devices


@dataclass(frozen=True)
class Place:
    """One rank of ``world_size`` ranks, and its device: ``"cpu"`` or a CUDA index.

    With ``shares_gpu``, all ranks have the same GPU.
    """

    rank: int
    world_size: int
    device: Any
    shares_gpu: bool = False

    @classmethod
    def on(cls, device: str, rank: int, world_size: int) -> Place:
        """The place of a rank on the device of this name, whose GPUs are the only ones that the rank sees."""
        if device == devices.CPU:
            return cls(rank, world_size, devices.CPU)
        if device == devices.CUDA_GLOO:
            return cls(rank, world_size, 0, shares_gpu=True)
        return cls(rank, world_size, rank)

    @property
    def kind(self) -> str:
        """The device type: ``cpu`` or ``cuda``."""
        return "cpu" if self.device == "cpu" else "cuda"

    @property
    def backend(self) -> str:
        """The backend of ``torch.distributed``; NCCL refuses two ranks on one GPU."""
        return "gloo" if self.kind == "cpu" or self.shares_gpu else "nccl"

    @property
    def local_rank(self) -> int:
        """The ``LOCAL_RANK`` of a launcher, by which front ends choose the GPU."""
        return self.device if self.shares_gpu else self.rank
