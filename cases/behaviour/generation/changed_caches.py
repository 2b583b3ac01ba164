"""Caches that a script fills and changes by itself: which states they hold, and what a model makes of them.

https://huggingface.co/docs/transformers/kv_cache
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
WINDOW, ROOM, HEADS, LAYERS = 4, 12, 2, 2
PIECES: Sequence[Sequence[int]] = ((1, 1, 1, 1, 1, 1), (3, 1, 2), (2, 5, 1, 1), (7, 1, 3), (4, 1, 1), (5, 4))
SAME = 1e-5  # of logits around 1


def states(first: int, count: int, layer: int, rows: int = 2) -> tuple[Any, Any]:
    """Keys and values that name their layer, row, head and position, so that no two of them are alike."""
    import torch

    places = torch.arange(first, first + count, dtype=torch.float32).view(1, 1, count, 1)
    row = torch.arange(rows, dtype=torch.float32).view(rows, 1, 1, 1) * 100
    head = torch.arange(HEADS, dtype=torch.float32).view(1, HEADS, 1, 1) * 1000
    keys = (places + row + head + 10000 * (layer + 1)).expand(rows, HEADS, count, 3)
    return keys.contiguous(), -keys.contiguous()


def config(window: int | None) -> Any:
    from transformers import MistralConfig

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    return MistralConfig(vocab_size=40, num_hidden_layers=LAYERS, sliding_window=window, **sizes)


def fill(cache: Any, pieces: Sequence[int], begin: int = 0) -> list[tuple[Any, Any]]:
    """Give pieces of a row to every layer; return what the last update of each returns."""
    found: list[tuple[Any, Any]] = []
    for count in pieces:
        found = [cache.update(*states(begin, count, layer), layer) for layer in range(LAYERS)]
        begin += count
    return found


def off(found: tuple[Any, Any], wanted: tuple[Any, Any]) -> str:
    """Which of keys and values are others."""
    names = [name for name, a, b in zip(("keys", "values"), found, wanted, strict=True) if not a.equal(b)]
    return " ".join(names) or "none"


@call(GROUP, phase=Phase.FORWARD, requires=("layered_caches",))
def states_of_caches(_ctx: Context) -> Iterator[Check]:
    """Dynamic and static caches return all states so far in their order, however many come at a time.

    A static cache has zeros in its free places.
    """
    import torch
    from transformers import DynamicCache, StaticCache

    for pieces in PIECES:
        total = sum(pieces)
        for fixed in (False, True):
            cache = StaticCache(config=config(None), max_cache_len=ROOM) if fixed else DynamicCache(config=config(None))
            found = fill(cache, pieces)
            title = f"{pieces}, static={fixed}"
            yield equal(f"length, {title}", int(cache.get_seq_length()), total)
            for layer, pair in enumerate(found):
                wanted = states(0, total, layer)
                if fixed:
                    free = torch.zeros(2, HEADS, ROOM - total, 3)
                    wanted = (torch.cat([wanted[0], free], 2), torch.cat([wanted[1], free], 2))
                yield equal(f"states that are others, {title}, layer {layer}", off(pair, wanted), "none")


@call(GROUP, phase=Phase.FORWARD, requires=("layered_caches",))
def states_of_windows(_ctx: Context) -> Iterator[Check]:
    """Caches of sliding windows return every state that one of the new queries sees, the newest last.

    A query sees the window's length of positions, its own included.
    """
    from transformers import DynamicCache, StaticCache

    for pieces in PIECES:
        total, new = sum(pieces), pieces[-1]
        first = max(0, total - new - WINDOW + 1)  # the first query sees from here on
        for fixed in (False, True):
            chosen = config(WINDOW)
            cache = StaticCache(config=chosen, max_cache_len=ROOM) if fixed else DynamicCache(config=chosen)
            found = fill(cache, pieces)
            title = f"{pieces}, static={fixed}"
            yield equal(f"length, {title}", int(cache.get_seq_length()), total)
            for layer, (keys, values) in enumerate(found):
                wanted = states(first, total - first, layer)
                seen = (keys[:, :, : total - first], values[:, :, : total - first])  # static ones may have room behind
                if keys.shape[2] > total - first and total >= WINDOW:
                    seen = (keys[:, :, first - total :], values[:, :, first - total :])
                yield equal(f"states that are others, {title}, layer {layer}", off(seen, wanted), "none")


def chosen_rows(pair: tuple[Any, Any], rows: Sequence[int]) -> tuple[Any, Any]:
    return pair[0][[*rows]], pair[1][[*rows]]


@call(GROUP, phase=Phase.FORWARD, requires=("layered_caches",))
def rows_of_caches(_ctx: Context) -> Iterator[Check]:
    """Rows of caches are reordered, repeated and selected in every layer, and the cache goes on with the new rows.

    Windows and static caches can be reordered too.
    """
    import torch
    from transformers import DynamicCache, StaticCache

    changes = {
        "reorder_cache": (torch.tensor([1, 1]), (1, 1)),
        "batch_repeat_interleave": (2, (0, 0, 1, 1)),
        "batch_select_indices": (torch.tensor([1]), (1,)),
    }
    for (name, (argument, rows)), kind in itertools.product(changes.items(), ("dynamic", "window", "static")):
        if kind == "static" and name != "reorder_cache":
            continue
        chosen = config(ROOM if kind == "window" else None)
        cache = StaticCache(config=chosen, max_cache_len=5) if kind == "static" else DynamicCache(config=chosen)
        fill(cache, (3,))
        getattr(cache, name)(argument)
        more = [chosen_rows(states(3, 2, layer), rows) for layer in range(LAYERS)]
        found = [cache.update(*pair, layer) for layer, pair in enumerate(more)]
        for layer, pair in enumerate(found):
            wanted = chosen_rows(states(0, 5, layer), rows)
            yield equal(f"states that are others, {name}, {kind}, layer {layer}", off(pair, wanted), "none")


@call(GROUP, phase=Phase.FORWARD, requires=("layered_caches",))
def shortened_caches(_ctx: Context) -> Iterator[Check]:
    """Crop removes the newest tokens of every layer, reset removes all of them, and the cache goes on from there."""
    from transformers import DynamicCache, StaticCache

    for window, removed in itertools.product((None, ROOM), (1, 3)):
        cache = DynamicCache(config=config(window))
        fill(cache, (2, 4))
        cache.crop(-removed)
        title = f"window={window}, {removed} tokens less"
        yield equal(f"length, {title}", cache.get_seq_length(), 6 - removed)
        found = fill(cache, (2,), begin=6 - removed)
        yield equal(f"length, {title}, and two", cache.get_seq_length(), 8 - removed)
        for layer, pair in enumerate(found):
            wanted = states(0, 8 - removed, layer)
            yield equal(f"states that are others, {title}, layer {layer}", off(pair, wanted), "none")
    for window, fixed in itertools.product((None, WINDOW), (False, True)):
        chosen = config(window)
        cache = StaticCache(config=chosen, max_cache_len=ROOM) if fixed else DynamicCache(config=chosen)
        fill(cache, (3, 2, 1))
        cache.reset()
        title = f"window={window}, static={fixed}, after reset"
        yield equal(f"length, {title}", int(cache.get_seq_length()), 0)
        for layer, (keys, values) in enumerate(fill(cache, (2, 1))):
            wanted = states(0, 3, layer)
            yield equal(
                f"states that are others, {title}, layer {layer}",
                off((keys[:, :, :3], values[:, :, :3]), wanted),
                "none",
            )
            behind = sum(int(each[:, :, 3:].count_nonzero()) for each in (keys, values))
            yield equal(f"states behind, {title}, layer {layer}", behind, 0)


@call(GROUP, phase=Phase.FORWARD, requires=("recorded_windows",))
def shortened_windows(_ctx: Context) -> Iterator[Check]:
    """A cache of full windows is cropped if it records the past: it holds the states that the next query sees.

    Those are one less than the window, the newest last. Without a record, crop refuses.
    """
    from transformers import DynamicCache

    for pieces, removed in itertools.product(((3, 3, 1), (7,), (2, 2, 2, 2, 1)), (0, 1, 2)):
        cache, total = DynamicCache(config=config(WINDOW)), sum(pieces)
        cache.activate_past_recording()
        fill(cache, pieces)
        cache.crop(-removed)
        left, title = total - removed, f"{pieces}, {removed} tokens less"
        yield equal(f"length, {title}", cache.get_seq_length(), left)
        for layer, each in enumerate(cache.layers):
            wanted = states(left - WINDOW + 1, WINDOW - 1, layer)
            found = off((each.keys, each.values), wanted)
            yield equal(f"states that are others, {title}, layer {layer}", found, "none")
    cache = DynamicCache(config=config(WINDOW))
    fill(cache, (3, 3))
    refused = "no"
    try:
        cache.crop(-1)
    except RuntimeError:
        refused = "yes"
    yield equal("refuses to crop a full window without a record", refused, "yes")


@call(GROUP, phase=Phase.FORWARD, requires=("layered_caches",))
def caches_of_both_sides(_ctx: Context) -> Iterator[Check]:
    """Caches of an encoder and a decoder change the rows of both sides, and shorten the decoder's alone."""
    import torch
    from transformers import DynamicCache, EncoderDecoderCache

    def made() -> Any:
        own, other = DynamicCache(config=config(None)), DynamicCache(config=config(None))
        fill(own, (3,))
        for layer in range(LAYERS):
            other.update(*states(50, 4, layer), layer)
        return EncoderDecoderCache(own, other)

    changes = {
        "reorder_cache": (torch.tensor([1, 0]), (1, 0), 3),
        "batch_repeat_interleave": (2, (0, 0, 1, 1), 3),
        "batch_select_indices": (torch.tensor([1]), (1,), 3),
        "crop": (-2, (0, 1), 1),
    }
    for name, (argument, rows, left) in changes.items():
        cache = made()
        getattr(cache, name)(argument)
        for layer in range(LAYERS):
            own, other = (each.layers[layer] for each in (cache.self_attention_cache, cache.cross_attention_cache))
            found = off((own.keys, own.values), chosen_rows(states(0, left, layer), rows))
            yield equal(f"states that are others, {name}, decoder, layer {layer}", found, "none")
            found = off((other.keys, other.values), chosen_rows(states(50, 4, layer), rows))
            yield equal(f"states that are others, {name}, encoder, layer {layer}", found, "none")
        yield equal(f"length, {name}", cache.get_seq_length(), left)
    cache = made()
    yield equal("layers that have the encoder's states", str(cache.is_updated), str({0: True, 1: True}))
    cache.reset()
    yield equal("layers that have the encoder's states, after reset", str(cache.is_updated), str({0: False, 1: False}))
    for side in (cache.self_attention_cache, cache.cross_attention_cache):
        yield equal("length, reset", int(side.get_seq_length()), 0)


@call(GROUP, phase=Phase.FORWARD, requires=("layered_caches",))
def models_go_on_from_changed_caches(_ctx: Context) -> Iterator[Check]:
    """A model gives the logits of the whole rows behind a cache that a script shortened, repeated or reordered."""
    import torch
    from transformers import DynamicCache, MistralForCausalLM

    torch.manual_seed(0)
    ids = torch.arange(2 * 9).view(2, 9) * 7 % 40
    for window in (None, ROOM):
        model = MistralForCausalLM(config(window)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(8)
        whole = model(ids, use_cache=False).logits
        changes = {
            "crop": (-3, (0, 1), 3),
            "batch_repeat_interleave": (2, (0, 0, 1, 1), 6),
            "reorder_cache": (torch.tensor([1, 0]), (1, 0), 6),
            "batch_select_indices": (torch.tensor([1]), (1,), 6),
        }
        for name, (argument, rows, begin) in changes.items():
            cache = DynamicCache(config=model.config)
            with torch.no_grad():
                model(ids[:, :6], past_key_values=cache, use_cache=True)
                getattr(cache, name)(argument)
                found = model(ids[[*rows], begin:], past_key_values=cache, use_cache=True).logits
            wanted = whole[[*rows], begin:]
            yield at_most(
                f"logits off, {name}, window={window}", float((found - wanted).detach().abs().max()), SAME * 10
            )
