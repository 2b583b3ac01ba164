"""Adapters of several methods on 4-bit and 8-bit layers: what a layer applies, and what merging writes, by formula.

The formulas of the papers get the dequantised weight. A merged layer holds the sum quantised again, as PEFT documents
for merging into quantised layers (https://huggingface.co/docs/peft/developer_guides/quantization). The models are in
training mode: in evaluation, bitsandbytes may repack weights on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters.methods import layers
from cases.behaviour.adapters.methods.layers import METHODS, NAMES, TARGETS
from cases.behaviour.quantised import formats
from cases.behaviour.starts import adapted_layers
from cases.reference import quantisation
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst
from cases.space.verdict import Check, Phase, at_least, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context
    from cases.behaviour.adapters.methods.formulas import Pair
    from cases.behaviour.adapters.methods.layers import Method

GROUP = "Adapters on quantised layers"
FOUR, EIGHT = ("4bit",), ("8bit",)
SINGLE = 16 * UNIT_ROUNDOFF["fp32"]
# Rows of whole 4-bit blocks: bitsandbytes dequantises others wrongly on CPUs with AVX-512, which would hide the rest.
SIZES = {"wide": (128, 192), "tall": (256, 128)}
HALFWAY = 0.01  # the share of numbers that rounding may take to another level


@dataclass(frozen=True)
class Bits:
    """A kind of layer: how it is made, how it is read, its format by the reference, and its rounding in a pass."""

    flag: str
    made: Callable[[Context, Any, Any], Any]
    read: Callable[[Any], Any]
    rounded: Callable[[Any], Any]
    within: float


def four_bit(quant: str, *, double: bool = False) -> Bits:
    def read(layer: Any) -> Any:
        from bitsandbytes import functional

        return functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)

    return Bits(
        "is_loaded_in_4bit",
        lambda ctx, weight, bias: formats.four_bit_layer(ctx, weight, bias, quant, compress_statistics=double),
        read,
        lambda weight: formats.four_bit(weight.float(), quant, quantisation.BLOCK, double=double),
        SINGLE,
    )


def int8_values(layer: Any) -> Any:
    """The weight that an 8-bit layer holds; its numbers move to the layer's state in the first pass."""
    numbers, scales = layer.weight.data, getattr(layer.weight, "SCB", None)
    scales = layer.state.SCB if scales is None else scales
    return numbers.float() * scales[:, None].float() / formats.LARGEST


INT8 = Bits(
    "is_loaded_in_8bit",
    lambda ctx, weight, bias: formats.eight_bit_layer(ctx, weight, bias, threshold=0.0),
    int8_values,
    lambda weight: formats.int8_weight(weight.half()),  # bitsandbytes rounds to half precision before
    8 * UNIT_ROUNDOFF["fp16"],  # bitsandbytes computes 8-bit products in half precision
)


def quantised(ctx: Context, bits: Bits) -> Any:
    """The base of plain layers, quantised, as transformers marks its models."""
    made = adapted_layers.base(SIZES)
    for name in adapted_layers.TARGETS:
        plain = made.get_submodule(name)
        setattr(made, name, bits.made(ctx, plain.weight.detach(), plain.bias.detach()))
    setattr(made, bits.flag, True)
    return made.to(ctx.place.device)


def inner(model: Any, name: str) -> Any:
    """The base layer below the adapters."""
    found = layers.module(model, name)
    return found.get_base_layer() if hasattr(found, "get_base_layer") else found


def held(model: Any, bits: Bits) -> dict[str, Pair]:
    """The weights, dequantised, and the biases of the base layers: float64."""
    found = {}
    for name in adapted_layers.TARGETS:
        layer = inner(model, name)
        found[name] = bits.read(layer).detach().double().cpu(), layer.bias.detach().double().cpu().clone()
    return found


def updated(model: Any, method: Method, adapter: str, plain: Mapping[str, Pair]) -> dict[str, Pair]:
    """What the layers of an adapter should apply, by the formula of its method."""
    found = {}
    for name in TARGETS[adapter]:
        parts = {each: value.cpu() for each, value in layers.parts(model, method, name, adapter).items()}
        found[name] = method.formula(*plain[name], parts, method.arguments(adapter))
    return found


def adapted(ctx: Context, key: str, bits: Bits) -> Any:
    return layers.adapted(METHODS[key], quantised(ctx, bits)).train()


def applied(ctx: Context, key: str, bits: Bits) -> Iterator[Check]:
    """Compare what the layers apply with each adapter, and without."""
    method, model = METHODS[key], adapted(ctx, key, bits)
    plain = held(model, bits)
    for name in NAMES:
        model.base_model.set_adapter(name)
        wanted = updated(model, method, name, plain)
        found = {each: pair for each, pair in layers.applied(model).items() if each in wanted}
        yield at_least(f"what the {name} does", layers.off(plain, wanted), 10 * bits.within)
        yield at_most(f"weights of the {name} off", layers.off(found, wanted), bits.within)
    with model.disable_adapter():
        yield at_most("weights off while disabled", layers.off(layers.applied(model), plain), bits.within)


def merged(ctx: Context, key: str, bits: Bits) -> Iterator[Check]:
    """Merge each adapter into a fresh model: the sum, quantised again, and back to the base."""
    method = METHODS[key]
    for name in NAMES:
        for safe in (False, True):
            model = adapted(ctx, key, bits)
            plain = held(model, bits)
            wanted = updated(model, method, name, plain)
            for each in wanted:
                layers.module(model, each).merge(safe_merge=safe, adapter_names=[name])
            found = held(model, bits)
            title = f"{name}, {'safe' if safe else 'plain'}"
            yield at_most(f"merged weights off, {title}", shares_off(found, wanted, bits), HALFWAY)
            biases = worst(relative(found[each][1], pair[1]) for each, pair in wanted.items())
            yield at_most(f"merged biases off, {title}", biases, bits.within)
            model.unmerge_adapter()
            yield at_most(f"unmerged weights off, {title}", returned(held(model, bits), plain, wanted, bits), 1.5)


def shares_off(found: Mapping[str, Pair], wanted: Mapping[str, Pair], bits: Bits) -> float:
    """The largest share of a layer's numbers that are not the quantised ones that are wanted."""
    shares = []
    for name, (weight, _) in wanted.items():
        exact = bits.rounded(weight).double()
        shares.append(float(((found[name][0] - exact).abs() > SINGLE * exact.abs().max()).double().mean()))
    return worst(shares)


def returned(found: Mapping[str, Pair], plain: Mapping[str, Pair], wanted: Mapping[str, Pair], bits: Bits) -> float:
    """How far a base is after unmerging, in units of the error of quantising it twice."""
    errors = []
    for name, (weight, _) in wanted.items():
        once = (bits.rounded(weight).double() - weight).norm()
        again = (bits.rounded(plain[name][0] + once / weight.numel() ** 0.5).double() - plain[name][0]).norm()
        errors.append(float((found[name][0] - plain[name][0]).norm() / (once + again)))
    return worst(errors)


def delta(ctx: Context, key: str, bits: Bits) -> Iterator[Check]:
    """Compare get_delta_weight of each layer with what its formula adds to the weight."""
    method, model = METHODS[key], adapted(ctx, key, bits)
    plain = held(model, bits)
    for name in NAMES:
        wanted = updated(model, method, name, plain)
        for each, (weight, _) in wanted.items():
            found = layers.module(model, each).get_delta_weight(name).detach().double().cpu()
            yield at_most(f"delta of {name} in {each} off", relative(found, weight - plain[each][0]), 1e-4)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_lora(ctx: Context) -> Iterator[Check]:
    """LoRA and rsLoRA on 4-bit layers add their scaled product to what the dequantised weight gives."""
    for quant in ("nf4", "fp4"):
        yield from applied(ctx, "lora", four_bit(quant))


@call(GROUP, phase=Phase.MERGE, requires=FOUR)
def merge_four_bit_lora(ctx: Context) -> Iterator[Check]:
    """Merging LoRA and rsLoRA into 4-bit layers quantises weight + scaled product, for lora_alpha other than r."""
    for bits in (four_bit("nf4"), four_bit("fp4"), four_bit("nf4", double=True)):
        yield from merged(ctx, "lora", bits)


@call(GROUP, phase=Phase.MERGE, requires=(*FOUR, "dora"))
def merge_four_bit_dora(ctx: Context) -> Iterator[Check]:
    """DoRA on 4-bit layers applies and merges its magnitudes times the direction of weight + scaled product."""
    yield from applied(ctx, "dora", four_bit("nf4"))
    yield from merged(ctx, "dora", four_bit("nf4"))


@call(GROUP, phase=Phase.MERGE, requires=EIGHT)
def merge_eight_bit_lora(ctx: Context) -> Iterator[Check]:
    """LoRA and rsLoRA on 8-bit layers apply and merge their scaled product, for lora_alpha other than r."""
    yield from applied(ctx, "lora", INT8)
    yield from merged(ctx, "lora", INT8)


@call(GROUP, phase=Phase.MERGE, requires=(*EIGHT, "dora"))
def merge_eight_bit_dora(ctx: Context) -> Iterator[Check]:
    """DoRA on 8-bit layers applies and merges its magnitudes times the direction of weight + scaled product."""
    yield from applied(ctx, "dora", INT8)
    yield from merged(ctx, "dora", INT8)


@call(GROUP, phase=Phase.MERGE, requires=FOUR)
def delta_of_four_bit_lora(ctx: Context) -> Iterator[Check]:
    """get_delta_weight of LoRA on 4-bit layers is lora_alpha / r (with rsLoRA, lora_alpha / √r) times B A."""
    yield from delta(ctx, "lora", four_bit("nf4"))


@call(GROUP, phase=Phase.MERGE, requires=EIGHT)
def delta_of_eight_bit_lora(ctx: Context) -> Iterator[Check]:
    """get_delta_weight of LoRA on 8-bit layers is lora_alpha / r (with rsLoRA, lora_alpha / √r) times B A."""
    yield from delta(ctx, "lora", INT8)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_ia3(ctx: Context) -> Iterator[Check]:
    """(IA)³ on 4-bit layers multiplies inputs or outputs by its vector."""
    yield from applied(ctx, "ia3", four_bit("nf4"))


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def eight_bit_ia3(ctx: Context) -> Iterator[Check]:
    """(IA)³ on 8-bit layers multiplies inputs or outputs by its vector."""
    yield from applied(ctx, "ia3", INT8)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_adalora(ctx: Context) -> Iterator[Check]:
    """AdaLoRA on 4-bit layers adds B diag(E) A, scaled by lora_alpha over the rank."""
    yield from applied(ctx, "adalora", four_bit("nf4"))


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def eight_bit_adalora(ctx: Context) -> Iterator[Check]:
    """AdaLoRA on 8-bit layers adds B diag(E) A, scaled by lora_alpha over the rank."""
    yield from applied(ctx, "adalora", INT8)


@call(GROUP, phase=Phase.FORWARD, requires=(*FOUR, "vera_of_two_sizes"))
def four_bit_vera(ctx: Context) -> Iterator[Check]:
    """VeRA on 4-bit layers adds its scaled random matrices."""
    yield from applied(ctx, "vera", four_bit("nf4"))


@call(GROUP, phase=Phase.MERGE, requires=(*FOUR, "peft_RoadConfig"))
def merge_four_bit_road(ctx: Context) -> Iterator[Check]:
    """RoAd on 4-bit layers rotates and scales pairs of outputs, and merges into weights that are quantised again."""
    yield from applied(ctx, "road", four_bit("nf4"))
    yield from merged(ctx, "road", four_bit("nf4"))


@call(GROUP, phase=Phase.MERGE, requires=(*EIGHT, "peft_RoadConfig"))
def merge_eight_bit_road(ctx: Context) -> Iterator[Check]:
    """RoAd on 8-bit layers rotates and scales pairs of outputs, and merges into weights that are quantised again."""
    yield from applied(ctx, "road", INT8)
    yield from merged(ctx, "road", INT8)
