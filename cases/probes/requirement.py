"""A requirement of a case, with the probe that finds it missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases.space.options import Options
    from cases.space.place import Place

    Probe = Callable[[Place, Path], None]


@dataclass(frozen=True)
class Requirement:
    """``because`` begins the sentence of the skip.

    ``cpu_only`` for what only a machine without GPUs can lack, ``cuda_only`` for what only one with GPUs can.
    ``shared_only`` for what only ranks that share a GPU can lack.
    """

    name: str
    when: Callable[[Options], bool]
    probe: Probe
    because: str
    ranks: int = 1
    cpu_only: bool = False
    cuda_only: bool = False
    shared_only: bool = False
