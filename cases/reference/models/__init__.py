"""Reference implementations of model architectures, one module per ``model_type`` of a published ``config.json``.

Each module has ``TABLES``, the ends of the names of matrices in which rows are looked up instead of multiplied, and
``logits(network, batch)``. They are written after the papers and the published configurations, and import torch only.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cases.space.verdict import UnknownModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from cases.reference.network import Batch, Network


def architecture(config: Mapping[str, Any]) -> ModuleType:
    """The reference implementation for a configuration.

    Raises:
        UnknownModelError: there is none.
    """
    name = f"{__name__}.{config.get('model_type', 'unknown')}"
    if find_spec(name) is None:
        raise UnknownModelError(f"no reference implementation for model_type {config.get('model_type')!r}")
    return importlib.import_module(name)


def logits(network: Network, batch: Batch) -> Any:
    """The logits of a batch: float64, shape (batch, length, vocabulary)."""
    return architecture(network.config).logits(network, batch)
