"""GPT-2 (Radford et al. 2019, Language Models are Unsupervised Multitask Learners), after its published code.

LayerNorm before each part, learned positions, one matrix for queries, keys and values, GELU by tanh. Linear layers
store (in, out). The head shares the embeddings' matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.reference import attention
from cases.reference.activations import activation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.reference.network import Batch, Network

TABLES = ("transformer.wte", "transformer.wpe")
TRANSPOSED = True


def logits(network: Network, batch: Batch) -> Any:
    import torch

    x = network.embedding("transformer.wte", batch.ids)
    if batch.embeddings is not None:
        x = torch.cat([batch.embeddings, x], dim=1)
    x = x + network.embedding("transformer.wpe", attention.positions(batch))
    for number in range(network.config["n_layer"]):
        x = layer(network, number, x, batch)
    return network.head(norm(network, "transformer.ln_f", x), tied_to="transformer.wte")


def layer(network: Network, number: int, x: Any, batch: Batch) -> Any:
    name = f"transformer.h.{number}"
    x = x + attended(network, number, norm(network, f"{name}.ln_1", x), batch)
    return network.output(name, x + feed_forward(network, f"{name}.mlp", norm(network, f"{name}.ln_2", x)))


def attended(network: Network, number: int, x: Any, batch: Batch) -> Any:
    name, heads = f"transformer.h.{number}.attn", network.config["n_head"]
    queries, keys, values = (
        attention.split(each, heads) for each in network.linear(f"{name}.c_attn", x).chunk(3, dim=-1)
    )
    keys, values = attention.with_prefix(keys, values, batch, number)
    found = attention.attend(
        queries, keys, values, attention.mask(batch), scale=scale(network.config, queries.shape[-1], number)
    )
    return network.output(name, network.linear(f"{name}.c_proj", attention.joined(found)))


def scale(config: Mapping[str, Any], width: int, number: int) -> float:
    """The factor of a layer's scores, by the documentation of ``GPT2Config``; Mistral's GPT-2 divides by the layer."""
    by_width = width**-0.5 if config.get("scale_attn_weights", True) else 1.0
    return by_width / (number + 1) if config.get("scale_attn_by_inverse_layer_idx") else by_width


def feed_forward(network: Network, name: str, x: Any) -> Any:
    inner = activation(network.config.get("activation_function", "gelu_new"), network.linear(f"{name}.c_fc", x))
    return network.output(name, network.linear(f"{name}.c_proj", inner))


def norm(network: Network, name: str, x: Any) -> Any:
    """LayerNorm (https://arxiv.org/abs/1607.06450)."""
    network.input(name, x)
    centred = x - x.mean(-1, keepdim=True)
    size = (centred.square().mean(-1, keepdim=True) + network.config.get("layer_norm_epsilon", 1e-5)).sqrt()
    return network.output(name, centred / size * network.tensors[f"{name}.weight"] + network.tensors[f"{name}.bias"])
