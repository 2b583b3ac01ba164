"""Qwen 2 (https://arxiv.org/abs/2407.10671): Llama with biases on queries, keys and values.

With ``use_sliding_window``, the layers from ``max_window_layers`` on have a window, or those that ``layer_types`` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.reference.models import llama

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.reference.network import Batch, Network

TABLES = llama.TABLES


def logits(network: Network, batch: Batch) -> Any:
    return network.head(llama.hidden(network, batch, windows=windows(network.config)))


def windows(config: Mapping[str, Any]) -> list[int | None]:
    """The window of each layer; None for a layer that attends to everything before."""
    numbers = range(config["num_hidden_layers"])
    if not config.get("use_sliding_window"):
        return [None for _ in numbers]
    kinds = config.get("layer_types")
    slides = [kinds[n] == "sliding_attention" if kinds else n >= config["max_window_layers"] for n in numbers]
    return [config["sliding_window"] if each else None for each in slides]
