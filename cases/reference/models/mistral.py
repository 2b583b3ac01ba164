"""Mistral (https://arxiv.org/abs/2310.06825): Llama with a sliding window in every layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.reference.models import llama

if TYPE_CHECKING:
    from cases.reference.network import Batch, Network

TABLES = llama.TABLES


def logits(network: Network, batch: Batch) -> Any:
    return llama.logits(network, batch, window=network.config.get("sliding_window"))
