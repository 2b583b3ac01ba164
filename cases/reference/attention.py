"""Attention of the reference: masks, rotary positions, softmax attention with grouped queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.reference.network import Batch


def mask(batch: Batch, *, window: int | None = None) -> Any:
    """The pairs of tokens (query, key) that attend: bool, shape (batch, 1, length, virtual + length).

    A token attends to itself and to earlier real tokens of its document; with a window, only to the last ``window`` of
    them, itself included (Mistral, https://arxiv.org/abs/2310.06825, section 2). Virtual tokens count as real ones
    before the first.
    """
    import torch

    length = batch.ids.shape[1]
    virtual = batch.embeddings.shape[1] if batch.embeddings is not None else 0
    virtual += batch.prefix[0][0].shape[2] if batch.prefix is not None else 0
    place = torch.arange(virtual + length)
    distance = place[:, None] - place
    allowed = distance >= 0
    if window is not None:
        allowed = allowed & (distance < window)
    allowed = allowed.expand(len(batch.ids), -1, -1)
    for of_token, apart in ((batch.real, False), (batch.documents, True)):
        if of_token is None:
            continue
        known = torch.nn.functional.pad(of_token.long(), (virtual, 0), value=1)
        allowed = allowed & ((known[:, :, None] == known[:, None]) if apart else known.bool()[:, None])
    queries = virtual if batch.prefix is not None else 0
    return allowed[:, None, queries:]


def positions(batch: Batch) -> Any:
    """The position of each token, int64 (batch, virtual + length); virtual tokens come first."""
    import torch

    virtual = batch.embeddings.shape[1] if batch.embeddings is not None else 0
    before = batch.prefix[0][0].shape[2] if batch.prefix is not None else 0
    if batch.positions is not None:
        return batch.positions
    return (torch.arange(virtual + batch.ids.shape[1]) + before).expand(len(batch.ids), -1)


def attend(queries: Any, keys: Any, values: Any, allowed: Any, *, scale: float, cap: float | None = None) -> Any:
    """Softmax attention (https://arxiv.org/abs/1706.03762): all (batch, heads, length, width).

    Each group of query heads shares one head of keys and values (https://arxiv.org/abs/2305.13245). ``cap`` bends
    scores into (-cap, cap) (Gemma 2, https://arxiv.org/abs/2408.00118, section 2). A query without any key gives zero.
    """
    import torch

    group = queries.shape[1] // keys.shape[1]
    keys, values = (each.repeat_interleave(group, dim=1) for each in (keys, values))
    scores = queries @ keys.transpose(-1, -2) * scale
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    alone = ~allowed.any(-1, keepdim=True)  # softmax over nothing has no value and no gradient
    weights = scores.masked_fill(~(allowed | alone), -torch.inf).softmax(-1)
    return (weights @ values).masked_fill(alone, 0.0)


def split(x: Any, heads: int) -> Any:
    """(batch, length, heads * width) to (batch, heads, length, width)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(x: Any) -> Any:
    """(batch, heads, length, width) to (batch, length, heads * width)."""
    return x.transpose(1, 2).flatten(-2)


def rotated(x: Any, angles: Any) -> Any:
    """Rotary position embedding (https://arxiv.org/abs/2104.09864), in the layout of the published Llama weights.

    ``x``: (batch, heads, length, width). Entry i of a head turns together with entry i + width / 2, by the rotations
    ``angles``, complex (batch, length, width / 2).
    """
    import torch

    cosine, sine = angles.real[:, None], angles.imag[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def with_prefix(keys: Any, values: Any, batch: Batch, layer: int) -> tuple[Any, Any]:
    """Keys and values with those of a prefix before them (https://arxiv.org/abs/2101.00190)."""
    import torch

    if batch.prefix is None:
        return keys, values
    own_keys, own_values = batch.prefix[layer]
    return torch.cat([own_keys, keys], dim=2), torch.cat([own_values, values], dim=2)


def head_width(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
