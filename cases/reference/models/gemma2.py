"""Gemma 2 (https://arxiv.org/abs/2408.00118), after the published configurations.

Embeddings are scaled by sqrt(hidden). Norms multiply by 1 + weight and stand before and after each part. Every other
layer, from the first on, has a sliding window, unless ``layer_types`` says otherwise. Attention scores and logits have
soft caps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.reference import attention, rotary
from cases.reference.activations import activation
from cases.reference.models import llama

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.reference.network import Batch, Network

TABLES = llama.TABLES


def logits(network: Network, batch: Batch) -> Any:
    import torch

    config = network.config
    x = llama.embedded(network, batch) * config["hidden_size"] ** 0.5
    angles = rotary.angles(attention.positions(batch), config)
    for number in range(config["num_hidden_layers"]):
        x = layer(network, number, x, angles, batch)
    found = network.head(norm(network, "model.norm", x))
    cap = config.get("final_logit_softcapping")
    return found if cap is None else cap * torch.tanh(found / cap)


def layer(network: Network, number: int, x: Any, angles: Any, batch: Batch) -> Any:
    name = f"model.layers.{number}"
    found = attended(network, number, norm(network, f"{name}.input_layernorm", x), angles, batch)
    x = x + norm(network, f"{name}.post_attention_layernorm", found)
    found = gated(network, f"{name}.mlp", norm(network, f"{name}.pre_feedforward_layernorm", x))
    return network.output(name, x + norm(network, f"{name}.post_feedforward_layernorm", found))


def attended(network: Network, number: int, x: Any, angles: Any, batch: Batch) -> Any:
    name, config = f"model.layers.{number}.self_attn", network.config
    groups = config["num_key_value_heads"]
    queries = attention.rotated(
        attention.split(network.linear(f"{name}.q_proj", x), config["num_attention_heads"]), angles
    )
    keys = attention.rotated(attention.split(network.linear(f"{name}.k_proj", x), groups), angles)
    values = attention.split(network.linear(f"{name}.v_proj", x), groups)
    keys, values = attention.with_prefix(keys, values, batch, number)
    found = attention.attend(
        queries,
        keys,
        values,
        attention.mask(batch, window=window(config, number)),
        scale=config["query_pre_attn_scalar"] ** -0.5,
        cap=config.get("attn_logit_softcapping"),
    )
    return network.output(name, network.linear(f"{name}.o_proj", attention.joined(found)))


def window(config: Mapping[str, Any], number: int) -> int | None:
    """The sliding window of a layer; None for a layer that attends to everything before."""
    kinds = config.get("layer_types") or ("sliding_attention", "full_attention") * config["num_hidden_layers"]
    return config["sliding_window"] if kinds[number] == "sliding_attention" else None


def gated(network: Network, name: str, x: Any) -> Any:
    """GeGLU (https://arxiv.org/abs/2002.05202) with the approximation of GELU by tanh."""
    chosen = network.config.get("hidden_activation", "gelu_pytorch_tanh")
    gate = activation(chosen, network.linear(f"{name}.gate_proj", x))
    return network.output(name, network.linear(f"{name}.down_proj", gate * network.linear(f"{name}.up_proj", x)))


def norm(network: Network, name: str, x: Any) -> Any:
    """RMSNorm that multiplies by 1 + weight."""
    network.input(name, x)
    size = (x.square().mean(-1, keepdim=True) + network.config["rms_norm_eps"]).sqrt()
    return network.output(name, x / size * (1 + network.tensors[f"{name}.weight"]))
