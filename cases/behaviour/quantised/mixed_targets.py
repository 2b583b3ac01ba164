"""Adapters on models of which some layers are quantised and others plain, for inputs in single and half precision.

Quantisation leaves out the head of a model by default, which may be adapted as well:
https://huggingface.co/docs/transformers/quantization/bitsandbytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS, NAMES
from cases.behaviour.quantised import adapters_on_layers
from cases.behaviour.quantised.adapters_on_layers import EIGHT, FOUR, GROUP, INT8, SIZES, four_bit
from cases.behaviour.starts import adapted_layers
from cases.model import tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Check, Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.behaviour.quantised.adapters_on_layers import Bits

QUANTISED, PLAIN = "wide", "tall"
KINDS = ("lora", "adalora", "ia3", "vera", "road", "randlora")  # methods with layers of their own for quantised weights
ROWS, SEVERAL = 9, 8.0  # roundings of an output, of what the adapter computes in between, and of sums


def known(key: str) -> bool:
    import peft

    return key in METHODS and hasattr(peft, METHODS[key].config)


def mixed(ctx: Context, bits: Bits) -> Any:
    """The base with one quantised layer and one plain one, marked as a quantised model."""
    made = adapted_layers.base(SIZES)
    plain = made.get_submodule(QUANTISED)
    setattr(made, QUANTISED, bits.made(ctx, plain.weight.detach(), plain.bias.detach()))
    setattr(made, bits.flag, True)
    return made.to(ctx.place.device)


def held(model: Any, bits: Bits) -> dict[str, Any]:
    """The weights and biases below the adapters, float64; those of the quantised layer dequantised."""
    found = {}
    for name in adapted_layers.TARGETS:
        layer = adapters_on_layers.inner(model, name)
        weight = bits.read(layer) if name == QUANTISED else layer.weight
        found[name] = weight.detach().double().cpu().clone(), layer.bias.detach().double().cpu().clone()
    return found


def in_half_precision(ctx: Context, key: str, model: Any, wanted: Any) -> Iterator[Check]:
    """Compare the outputs of the quantised layer for inputs in bfloat16; some methods return them in float32."""
    import torch

    weight, bias = wanted
    inputs = tiny.values("inputs", (ROWS, SIZES[QUANTISED][1])).to(torch.bfloat16)
    with torch.no_grad():
        found = layers.module(model, QUANTISED)(inputs.to(ctx.place.device)).cpu()
    off = relative(found, inputs.double() @ weight.T + bias) / UNIT_ROUNDOFF["bf16"]
    yield at_most(f"outputs in bfloat16 off, in roundings, {key}", off, SEVERAL)


def story(ctx: Context, bits: Bits) -> Iterator[Check]:
    """Adapt both layers by each method, and compare what they apply with its formula."""
    for key in filter(known, KINDS):
        method = METHODS[key]
        model = layers.adapted(method, mixed(ctx, bits)).train()
        plain = held(model, bits)
        for name in NAMES:
            model.base_model.set_adapter(name)
            wanted = adapters_on_layers.updated(model, method, name, plain)
            found = {each: pair for each, pair in layers.applied(model).items() if each in wanted}
            yield at_most(f"weights of the {name} off, {key}", layers.off(found, wanted), bits.within)
            if QUANTISED in wanted:
                yield from in_half_precision(ctx, key, model, wanted[QUANTISED])
        with model.disable_adapter():
            off = layers.off(layers.applied(model), plain)
        yield at_most(f"weights off while disabled, {key}", off, bits.within)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def adapters_beside_four_bit_layers(ctx: Context) -> Iterator[Check]:
    """A method's adapters on 4-bit layers and on plain ones of the same model apply its formula, also in bfloat16."""
    yield from story(ctx, four_bit("nf4"))


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def adapters_beside_eight_bit_layers(ctx: Context) -> Iterator[Check]:
    """A method's adapters on 8-bit layers and on plain ones of the same model apply its formula, also in bfloat16."""
    yield from story(ctx, INT8)
