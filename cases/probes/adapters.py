"""Probes of what PEFT's configurations offer for choosing and combining adapters: fields, and what is documented."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from pathlib import Path

    from cases.space.place import Place


def lora_field(_place: Place, _cache: Path, name: str) -> None:
    from peft import LoraConfig

    if name not in inspect.signature(LoraConfig).parameters:
        raise LackingError(f"LoraConfig has no {name}")


def anchored_patterns(_place: Place, _cache: Path) -> None:
    """Look for an expression with ^ in the documentation of rank_pattern."""
    from peft import LoraConfig

    if "{'^" not in (LoraConfig.__doc__ or ""):
        raise LackingError("LoraConfig documents no such keys of rank_pattern")
