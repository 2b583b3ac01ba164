"""The attention functions that every model calls, against softmax attention of plain torch.

https://huggingface.co/docs/transformers/attention_interface
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Models"
BATCH, HEADS, WIDTH, KEYS = 2, 4, 8, 5
SEEN = -0.2  # drawn numbers above are keys that a query sees
SAME = 1e-6  # of averages of numbers below 1


def drawn(*shape: int, seed: int) -> Any:
    import torch

    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def by_hand(query: Any, key: Any, value: Any, scale: float, allowed: Any, added: Any) -> Any:
    """Softmax attention in float64: (batch, queries, heads, width). Each key head serves neighbouring query heads."""
    shared = query.shape[1] // key.shape[1]
    keys, values = (each.double().repeat_interleave(shared, dim=1) for each in (key, value))
    scores = query.double() @ keys.transpose(2, 3) * scale
    if added is not None:
        scores = scores + added.double()
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return (scores.softmax(-1) @ values).transpose(1, 2)


def masks(queries: int) -> dict[str, Any]:
    """No mask, one of booleans, and one of numbers that are added, each with something to see for every query."""
    import torch

    seen = drawn(BATCH, 1, queries, KEYS, seed=9) > SEEN
    seen[..., 0] = True
    lowest = torch.finfo(torch.float32).min
    return {"none": None, "booleans": seen, "numbers": torch.where(seen, 0.0, lowest)}


def module(groups: int, *, causal: bool = True) -> Any:
    return SimpleNamespace(num_key_value_groups=groups, is_causal=causal, training=False, layer_idx=0)


@call(GROUP, phase=Phase.FORWARD, requires=("attention_functions",))
def attention_by_sdpa(_ctx: Context) -> Iterator[Check]:
    """The SDPA function shares key heads, scales, masks, and is causal only if there are several queries and no mask.

    A single query, as in generation with a cache, sees every key.
    """
    import torch
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    for queries, groups, scale in itertools.product((1, 3, KEYS), (1, 2), (None, 0.3)):
        query = drawn(BATCH, HEADS, queries, WIDTH, seed=1)
        key, value = (drawn(BATCH, HEADS // groups, KEYS, WIDTH, seed=seed) for seed in (2, 3))
        factor = WIDTH**-0.5 if scale is None else scale
        for name, mask in masks(queries).items():
            for of_module, of_call in ((True, None), (False, None), (True, False), (False, True)):
                causal = (of_module if of_call is None else of_call) and mask is None and queries > 1
                if causal and queries != KEYS:
                    continue  # SDPA aligns the first query with the first key, which models avoid
                order = torch.ones(queries, KEYS, dtype=torch.bool).tril() if causal else None
                allowed = mask if name == "booleans" else order
                wanted = by_hand(query, key, value, factor, allowed, mask if name == "numbers" else None)
                of = module(groups, causal=of_module)
                more = {} if of_call is None else {"is_causal": of_call}
                found, weights = sdpa_attention_forward(of, query, key, value, mask, scaling=scale, **more)
                title = f"{queries} queries, {groups}, {scale}, {name}, {of_module}, {of_call}"
                yield equal(f"shape, {title}", str(tuple(found.shape)), str((BATCH, queries, HEADS, WIDTH)))
                yield at_most(f"outputs off, {title}", float((found - wanted).abs().max()), SAME)
                yield equal(f"weights, {title}", weights is None, bound=True)
    query, key, value = (drawn(BATCH, HEADS, KEYS, WIDTH, seed=seed) for seed in (1, 2, 3))
    torch.manual_seed(4)
    dropped, _ = sdpa_attention_forward(module(1), query, key, value, None, dropout=0.5)
    kept, _ = sdpa_attention_forward(module(1), query, key, value, None, dropout=0.0)
    yield equal("outputs with dropout differ", bool((dropped - kept).abs().max() > SAME), bound=True)


@call(GROUP, phase=Phase.FORWARD, requires=("attention_functions",))
def attention_by_eager_functions(_ctx: Context) -> Iterator[Check]:
    """The eager function of each architecture computes the same, and returns weights that sum to one.

    Dropout in training zeroes weights and scales the others; in evaluation it does nothing.
    """
    import importlib

    import torch

    for model in ("llama", "mistral", "qwen2", "mixtral"):
        attend = importlib.import_module(f"transformers.models.{model}.modeling_{model}").eager_attention_forward
        for queries, groups in itertools.product((1, 3), (1, 2)):
            query = drawn(BATCH, HEADS, queries, WIDTH, seed=1)
            key, value = (drawn(BATCH, HEADS // groups, KEYS, WIDTH, seed=seed) for seed in (2, 3))
            for name in ("none", "numbers"):
                mask = masks(queries)[name]
                wanted = by_hand(query, key, value, 0.3, None, mask)
                found, weights = attend(module(groups), query, key, value, mask, scaling=0.3, dropout=0.7)
                title = f"{model}, {queries} queries, {groups}, {name}"
                yield at_most(f"outputs off, {title}", float((found - wanted).abs().max()), SAME)
                yield at_most(f"sum of weights off, {title}", float((weights.sum(-1) - 1).abs().max()), SAME)
        training = module(1)
        training.training = True
        query, key, value = (drawn(1, HEADS, 40, WIDTH, seed=seed) for seed in (1, 2, 3))
        torch.manual_seed(2)
        _, weights = attend(training, query, key, value, None, scaling=0.3, dropout=0.25)
        _, whole = attend(module(1), query, key, value, None, scaling=0.3, dropout=0.25)
        share = float((weights == 0).float().mean())
        yield at_most(f"share of dropped weights off, {model}", abs(share - 0.25), 0.03)
        kept = weights != 0
        yield at_most(f"kept weights off, {model}", float((weights[kept] - whole[kept] / 0.75).abs().max()), SAME)
