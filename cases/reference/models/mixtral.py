"""Mixtral (https://arxiv.org/abs/2401.04088): Mistral whose feed-forward layers are mixtures of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.reference import attention, rotary
from cases.reference.activations import activation
from cases.reference.models import llama

if TYPE_CHECKING:
    from cases.reference.network import Batch, Network

TABLES = llama.TABLES


def logits(network: Network, batch: Batch) -> Any:
    x = llama.embedded(network, batch)
    angles = rotary.angles(attention.positions(batch), network.config)
    for number in range(network.config["num_hidden_layers"]):
        x = layer(network, number, x, angles, batch)
    return network.head(llama.norm(network, "model.norm", x))


def layer(network: Network, number: int, x: Any, angles: Any, batch: Batch) -> Any:
    name, window = f"model.layers.{number}", network.config.get("sliding_window")
    normed = llama.norm(network, f"{name}.input_layernorm", x)
    x = x + llama.attended(network, number, normed, angles, batch, window)
    x = x + mixed(network, f"{name}.block_sparse_moe", llama.norm(network, f"{name}.post_attention_layernorm", x))
    return network.output(name, x)


def mixed(network: Network, name: str, x: Any) -> Any:
    """The experts that a router chooses for each token, weighted (section 2.1): softmax of the chosen logits."""
    import torch

    scores = network.linear(f"{name}.gate", x)
    chosen, which = scores.topk(network.config["num_experts_per_tok"], dim=-1)
    weights = torch.zeros_like(scores).scatter(-1, which, chosen.softmax(-1))
    every = [expert(network, f"{name}.experts.{number}", x) for number in range(scores.shape[-1])]
    return network.output(name, sum(weights[..., number, None] * each for number, each in enumerate(every)))


def expert(network: Network, name: str, x: Any) -> Any:
    """SwiGLU: w2(silu(w1 x) * w3 x)."""
    gate = activation(network.config.get("hidden_act", "silu"), network.linear(f"{name}.w1", x))
    return network.linear(f"{name}.w2", gate * network.linear(f"{name}.w3", x))


def balance_loss(router_logits: Any, per_token: int, real: Any = None) -> Any:
    """The auxiliary loss that balances experts (Switch Transformer, https://arxiv.org/abs/2101.03961, section 2.2).

    Experts times the sum over experts of (share of tokens that chose it) * (mean probability), over all layers' tokens
    together. ``router_logits``: (layers, batch, length, experts); ``real``: bool (batch, length).
    """
    import torch

    experts = router_logits.shape[-1]
    flat = router_logits if real is None else router_logits[:, real]
    probabilities = flat.reshape(-1, experts).softmax(-1)
    chosen = torch.nn.functional.one_hot(probabilities.topk(per_token, dim=-1).indices, experts).double()
    return experts * (chosen.mean(0).sum(0) * probabilities.mean(0)).sum()
