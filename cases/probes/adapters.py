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


def helper(_place: Place, _cache: Path, name: str) -> None:
    """Look for a function of ``peft.helpers``."""
    import peft.helpers

    if not hasattr(peft.helpers, name):
        raise LackingError(f"peft.helpers has no {name}")


def negative_weights(_place: Place, _cache: Path) -> None:
    """Look for negative weights in the documentation of ``add_weighted_adapter``."""
    from peft import LoraModel

    if "negative" not in (LoraModel.add_weighted_adapter.__doc__ or ""):
        raise LackingError("add_weighted_adapter documents no negative weights")
