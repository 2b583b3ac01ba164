"""T5 (https://arxiv.org/abs/1910.10683; T5 1.1's gated feed-forward layers after https://arxiv.org/abs/2002.05202).

An encoder and a decoder with RMSNorm before each part. Relative positions add a trained bias to the scores, which are
not scaled; the first layer of each stack holds the biases of all its layers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.reference import attention
from cases.reference.activations import activation

if TYPE_CHECKING:
    from cases.reference.network import Batch, Network

TABLES = ("shared", "relative_attention_bias")


def logits(network: Network, batch: Batch) -> Any:
    encoded = stack(network, "encoder", batch.ids, batch.real)
    decoded = stack(network, "decoder", batch.decoder_ids, None, encoded, batch.real)
    if network.config.get("tie_word_embeddings", True):  # T5 1.0 does not state it
        decoded = decoded * network.config["d_model"] ** -0.5
    return network.head(decoded, tied_to="shared")


def stack(network: Network, name: str, ids: Any, real: Any, encoded: Any = None, encoded_real: Any = None) -> Any:
    """The encoder, or the decoder of an encoded text: (batch, length, hidden)."""
    layers = network.config["num_layers" if encoded is None else "num_decoder_layers"]
    x = network.embedding("shared", ids)
    bias = position_bias(network, name, ids.shape[1]) + unseen(ids, real, causal=encoded is not None)
    for number in range(layers):
        layer = f"{name}.block.{number}.layer"
        normed = norm(network, f"{layer}.0.layer_norm", x)
        x = x + attended(network, f"{layer}.0.SelfAttention", normed, normed, bias)
        if encoded is not None:
            normed = norm(network, f"{layer}.1.layer_norm", x)
            x = x + attended(network, f"{layer}.1.EncDecAttention", normed, encoded, hidden_padding(encoded_real))
        last = f"{layer}.{1 if encoded is None else 2}"
        x = x + feed_forward(network, f"{last}.DenseReluDense", norm(network, f"{last}.layer_norm", x))
        network.output(f"{name}.block.{number}", x)
    return norm(network, f"{name}.final_layer_norm", x)


def unseen(ids: Any, real: Any, *, causal: bool) -> Any:
    """Minus infinity where a token must not attend, else 0: (batch or 1, 1, length or 1, length)."""
    import torch

    if not causal:
        return hidden_padding(real)
    length = ids.shape[1]
    return torch.full((length, length), -torch.inf, dtype=torch.float64).triu(1)[None, None]


def hidden_padding(real: Any) -> Any:
    import torch

    if real is None:
        return torch.zeros(1, 1, 1, 1, dtype=torch.float64)
    return torch.zeros(real.shape, dtype=torch.float64).masked_fill(~real, -torch.inf)[:, None, None]


def attended(network: Network, name: str, x: Any, memory: Any, bias: Any) -> Any:
    """Attention from x to memory; the bias has the shape of the scores."""
    heads = network.config["num_heads"]
    queries = attention.split(network.linear(f"{name}.q", x), heads)
    keys, values = (attention.split(network.linear(f"{name}.{part}", memory), heads) for part in "kv")
    weights = (queries @ keys.transpose(-1, -2) + bias).softmax(-1)
    return network.output(name, network.linear(f"{name}.o", attention.joined(weights @ values)))


def position_bias(network: Network, name: str, length: int) -> Any:
    """The bias of each pair of tokens, by the bucket of their distance: (1, heads, length, length)."""
    import torch

    place = torch.arange(length)
    found = buckets(place - place[:, None], network.config, both_ways=name == "encoder")
    table = network.tensors[f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    return table[found].permute(2, 0, 1)[None]


def buckets(distance: Any, config: Any, *, both_ways: bool) -> Any:
    """The buckets of distances from query to key, int64 (section 2.1): the first half exact, the others logarithmic.

    With both directions, each has half of the buckets; otherwise keys after the query share bucket 0.
    """
    import torch

    number, furthest = config["relative_attention_num_buckets"], config["relative_attention_max_distance"]
    offset = torch.zeros_like(distance)
    if both_ways:
        number //= 2
        offset = (distance > 0) * number
        distance = distance.abs()
    else:
        distance = (-distance).clamp_min(0)
    exact = number // 2
    ratio = (distance.double().clamp_min(1) / exact).log() / math.log(furthest / exact)
    far = (exact + (ratio * (number - exact)).long()).clamp_max(number - 1)
    return offset + torch.where(distance < exact, distance, far)


def feed_forward(network: Network, name: str, x: Any) -> Any:
    """T5 1.0 has one matrix before the activation; T5 1.1 multiplies by a second one's output."""
    kind = network.config["feed_forward_proj"]
    function = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    inner = activation(function, network.linear(f"{name}.wi_0" if kind.startswith("gated-") else f"{name}.wi", x))
    if kind.startswith("gated-"):
        inner = inner * network.linear(f"{name}.wi_1", x)
    return network.output(name, network.linear(f"{name}.wo", inner))


def norm(network: Network, name: str, x: Any) -> Any:
    network.input(name, x)
    size = (x.square().mean(-1, keepdim=True) + network.config["layer_norm_epsilon"]).sqrt()
    return network.output(name, x / size * network.tensors[f"{name}.weight"])
