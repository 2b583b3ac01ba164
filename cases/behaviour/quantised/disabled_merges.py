"""Adapters that are merged into quantised layers, then disabled and used again: the base comes back as quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS
from cases.behaviour.quantised.adapters_on_layers import (
    EIGHT,
    FOUR,
    GROUP,
    INT8,
    Bits,
    adapted,
    four_bit,
    held,
    returned,
    updated,
)
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check


def disabled(ctx: Context, key: str, bits: Bits) -> Iterator[Check]:
    """Merge the first adapter; compare what the layers hold and apply while it is disabled, and afterwards.

    Unmerging quantises again, so that the base comes back within the error of quantising twice.
    """
    method, model = METHODS[key], adapted(ctx, key, bits)
    plain = held(model, bits)
    wanted = updated(model, method, "first", plain)
    yield at_least(f"what the adapter does, {key}", layers.off(plain, wanted), 10 * bits.within)
    model.merge_adapter(adapter_names=["first"])
    with model.disable_adapter():
        found = layers.applied(model)
        base = held(model, bits)
        yield at_most(f"base off while disabled, {key}", returned(base, plain, wanted, bits), 1.5)
        yield at_most(f"weights off while disabled, {key}", layers.off(found, base), bits.within)
    merged = [name for name in wanted if layers.module(model, name).merged]
    yield equal(f"layers that are still merged, {key}", " ".join(merged) or "none", "none")
    again = updated(model, method, "first", held(model, bits))
    found = {name: pair for name, pair in layers.applied(model).items() if name in again}
    yield at_most(f"weights off afterwards, {key}", layers.off(found, again), bits.within)


@call(GROUP, phase=Phase.MERGE, requires=FOUR)
def disable_merged_four_bit_lora(ctx: Context) -> Iterator[Check]:
    """disable_adapter takes a merged LoRA out of 4-bit layers, and it computes on afterwards."""
    for quant in ("nf4", "fp4"):
        yield from disabled(ctx, "lora", four_bit(quant))


@call(GROUP, phase=Phase.MERGE, requires=EIGHT)
def disable_merged_eight_bit_lora(ctx: Context) -> Iterator[Check]:
    """disable_adapter takes a merged LoRA out of 8-bit layers, and it computes on afterwards."""
    yield from disabled(ctx, "lora", INT8)


@call(GROUP, phase=Phase.MERGE, requires=(*FOUR, "dora"))
def disable_merged_four_bit_dora(ctx: Context) -> Iterator[Check]:
    """disable_adapter takes a merged DoRA out of 4-bit layers, and it computes on afterwards."""
    yield from disabled(ctx, "dora", four_bit("nf4"))


@call(GROUP, phase=Phase.MERGE, requires=(*FOUR, "peft_RoadConfig"))
def disable_merged_four_bit_road(ctx: Context) -> Iterator[Check]:
    """disable_adapter takes a merged RoAd out of 4-bit layers, and it computes on afterwards."""
    yield from disabled(ctx, "road", four_bit("nf4"))


@call(GROUP, phase=Phase.MERGE, requires=(*EIGHT, "peft_RoadConfig"))
def disable_merged_eight_bit_road(ctx: Context) -> Iterator[Check]:
    """disable_adapter takes a merged RoAd out of 8-bit layers, and it computes on afterwards."""
    yield from disabled(ctx, "road", INT8)
