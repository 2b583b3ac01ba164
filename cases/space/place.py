"""The place of a rank: its number, the number of ranks, and its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """One rank of ``world_size`` ranks, and its device: ``"cpu"`` or a CUDA index."""

    rank: int
    world_size: int
    device: Any

    @property
    def kind(self) -> str:
        """The device type: ``cpu`` or ``cuda``."""
        return "cpu" if self.device == "cpu" else "cuda"
