"""Granite (https://arxiv.org/abs/2408.13359), after the published configurations: Llama with four multipliers.

They scale the embeddings, the attention scores instead of 1 / sqrt(width), what each part adds, and, as a divisor, the
logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.reference import attention, rotary
from cases.reference.models import llama

if TYPE_CHECKING:
    from cases.reference.network import Batch, Network

TABLES = llama.TABLES


def logits(network: Network, batch: Batch) -> Any:
    config = network.config
    x = llama.embedded(network, batch) * config["embedding_multiplier"]
    angles = rotary.angles(attention.positions(batch), config)
    for number in range(config["num_hidden_layers"]):
        x = layer(network, number, x, angles, batch)
    return network.head(llama.norm(network, "model.norm", x)) / config["logits_scaling"]


def layer(network: Network, number: int, x: Any, angles: Any, batch: Batch) -> Any:
    name, config = f"model.layers.{number}", network.config
    normed = llama.norm(network, f"{name}.input_layernorm", x)
    scale = config["attention_multiplier"]
    found = llama.attended(network, number, normed, angles, batch, None, scale=scale)
    x = x + config["residual_multiplier"] * found
    normed = llama.norm(network, f"{name}.post_attention_layernorm", x)
    return network.output(name, x + config["residual_multiplier"] * llama.gated(network, f"{name}.mlp", normed))
