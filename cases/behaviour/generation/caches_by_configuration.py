"""Caches that a configuration describes: a layer for each kind of layer, with its window.

https://huggingface.co/docs/transformers/kv_cache
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models.building import Variant
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
WINDOW = 6
KINDS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "whole": ("llama", {}, ["whole"] * 4),
    "windows": ("mistral", {"sliding_window": WINDOW}, ["window"] * 4),
    "alternating": (
        "gemma",
        {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"] * 2},
        ["window", "whole"] * 2,
    ),
}


def shown(cache: Any) -> list[str]:
    """Whether each layer of a cache has a window."""
    return ["window" if getattr(layer, "is_sliding", False) else "whole" for layer in cache.layers]


@call(GROUP, phase=Phase.INFER, requires=("layered_caches",))
def caches_of_configurations(ctx: Context) -> Iterator[Check]:
    """DynamicCache and StaticCache have a layer for each layer of a configuration, with a window where it has one.

    Layers without attention, as mixtures of experts beside them, get one that stores nothing.
    """
    import transformers
    from transformers import AutoConfig, DynamicCache, StaticCache

    for title, (model, changes, wanted) in KINDS.items():
        folder = Variant(model, {"num_hidden_layers": 4, **changes}).written(ctx, title)
        config = AutoConfig.from_pretrained(folder)
        for kind, made in (("dynamic", DynamicCache(config=config)), ("static", StaticCache(config, max_cache_len=32))):
            yield equal(f"layers, {kind}, {title}", str(shown(made)), str(wanted))
            sliding = [layer for layer in made.layers if getattr(layer, "is_sliding", False)]
            sizes = {getattr(layer, "sliding_window", None) or layer.max_cache_len for layer in sliding}
            yield equal(f"windows, {kind}, {title}", str(sizes), str({WINDOW} if "window" in wanted else set()))
    if not hasattr(transformers, "NemotronHConfig"):
        return
    parts = ["mamba", "moe", "attention", "mlp"]
    names = {"mamba": "linear_attention", "attention": "full_attention"}
    try:
        config = transformers.NemotronHConfig(layer_types=parts)
    except (TypeError, ValueError):
        config = transformers.NemotronHConfig(layers_block_type=parts)
    made = DynamicCache(config=config)
    empty = [type(layer).__name__ == "DummyLayer" for layer in made.layers]
    yield equal("layers that store nothing", str(empty), str([part not in names for part in parts]))
