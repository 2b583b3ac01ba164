"""Llama (https://arxiv.org/abs/2302.13971, https://arxiv.org/abs/2307.09288), after the published configurations.

RMSNorm before each part, rotary positions, grouped queries, SwiGLU. Qwen 2 and Mistral are variants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.reference import attention, rotary
from cases.reference.activations import activation

if TYPE_CHECKING:
    from cases.reference.network import Batch, Network

TABLES = ("model.embed_tokens",)


def logits(network: Network, batch: Batch, *, window: int | None = None) -> Any:
    return network.head(hidden(network, batch, windows=[window] * network.config["num_hidden_layers"]))


def hidden(network: Network, batch: Batch, *, windows: list[int | None]) -> Any:
    """The normalised output of the last layer: (batch, virtual + length, hidden)."""
    x = embedded(network, batch)
    angles = rotary.angles(attention.positions(batch), network.config)
    for number, window in enumerate(windows):
        x = layer(network, number, x, angles, batch, window)
    return norm(network, "model.norm", x)


def embedded(network: Network, batch: Batch) -> Any:
    """The embeddings of the tokens, behind those of virtual tokens."""
    import torch

    real = network.embedding("model.embed_tokens", batch.ids)
    return real if batch.embeddings is None else torch.cat([batch.embeddings, real], dim=1)


def layer(network: Network, number: int, x: Any, angles: Any, batch: Batch, window: int | None) -> Any:
    name = f"model.layers.{number}"
    x = x + attended(network, number, norm(network, f"{name}.input_layernorm", x), angles, batch, window)
    x = x + gated(network, f"{name}.mlp", norm(network, f"{name}.post_attention_layernorm", x))
    return network.output(name, x)


def attended(
    network: Network, number: int, x: Any, angles: Any, batch: Batch, window: int | None, *, scale: float | None = None
) -> Any:
    """Attention to the tokens of a window; scores are multiplied by 1 / sqrt(width of a head) or another scale."""
    name, config = f"model.layers.{number}.self_attn", network.config
    heads, groups = config["num_attention_heads"], config.get("num_key_value_heads") or config["num_attention_heads"]
    queries = attention.rotated(normed_heads(network, name, "q", x, heads), angles)
    keys = attention.rotated(normed_heads(network, name, "k", x, groups), angles)
    values = attention.split(network.linear(f"{name}.v_proj", x), groups)
    keys, values = attention.with_prefix(keys, values, batch, number)
    allowed = attention.mask(batch, window=window)
    scale = attention.head_width(config) ** -0.5 if scale is None else scale
    found = attention.joined(attention.attend(queries, keys, values, allowed, scale=scale))
    return network.output(name, network.linear(f"{name}.o_proj", found))


def normed_heads(network: Network, name: str, part: str, x: Any, heads: int) -> Any:
    """Queries or keys by head; Qwen 3 normalises each head's."""
    found = attention.split(network.linear(f"{name}.{part}_proj", x), heads)
    return norm(network, f"{name}.{part}_norm", found) if f"{name}.{part}_norm.weight" in network.tensors else found


def gated(network: Network, name: str, x: Any) -> Any:
    """SwiGLU (https://arxiv.org/abs/2002.05202): down(silu(gate(x)) * up(x)), or with another activation."""
    gate = activation(network.config.get("hidden_act", "silu"), network.linear(f"{name}.gate_proj", x))
    return network.output(name, network.linear(f"{name}.down_proj", gate * network.linear(f"{name}.up_proj", x)))


def norm(network: Network, name: str, x: Any) -> Any:
    """RMSNorm (https://arxiv.org/abs/1910.07467): x / sqrt(mean(x**2) + eps) * weight."""
    network.input(name, x)
    size = (x.square().mean(-1, keepdim=True) + network.config["rms_norm_eps"]).sqrt()
    return network.output(name, x / size * network.tensors[f"{name}.weight"])
