"""Quantised layers by their arguments: thresholds of LLM.int8, no compute dtype, and layers yet to quantise."""

from __future__ import annotations

import copy
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.reference import quantisation
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Quantised layers"
EIGHT, FOUR = ("8bit",), ("4bit",)
THRESHOLDS = (0.0, 0.05, 0.5, 0.8, 1.0, 1.5, 2.5, 100.0)
HALF = 4 * UNIT_ROUNDOFF["fp16"]
INPUTS, OUTPUTS = 8, 12
KINDS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def int8_thresholds(ctx: Context) -> Iterator[Check]:
    """llm_int8_threshold decides from which magnitude on an 8-bit layer takes a feature in full; 0 takes none.

    https://huggingface.co/docs/transformers/main_classes/quantization#transformers.BitsAndBytesConfig
    """
    import torch

    weight, bias = formats.numbers(48, 64, seed=2, short=True), formats.numbers(48, seed=3, short=True)
    for threshold, rows in product(THRESHOLDS, (1, 5)):
        layer = formats.eight_bit_layer(ctx, weight, bias, threshold=threshold).eval()
        # Features of sizes around all thresholds, so that each threshold has outliers and others.
        inputs = (formats.numbers(rows, 64, seed=5) * torch.linspace(0.01, 1.5, 64)).half().float()
        with torch.no_grad():
            found = layer(inputs.half().to(ctx.place.device)).double().cpu()
        expected = formats.int8_product(inputs, weight, threshold) + bias
        yield at_most(f"outputs off: threshold {threshold}, {rows} rows", relative(found, expected), 2 * HALF)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_dtype_of_first_inputs(ctx: Context) -> Iterator[Check]:
    """A 4-bit layer without compute_dtype computes later inputs in the dtype of its first ones, if they are no float16.

    float16 inputs set none: each such call computes in the dtype of its inputs.
    https://huggingface.co/docs/bitsandbytes/reference/nn/linear4bit
    """
    import torch
    from bitsandbytes.nn import Linear4bit

    weight, bias = formats.numbers(48, 64, seed=2), formats.numbers(48, seed=3, short=True)
    dense = formats.four_bit(weight, "nf4", quantisation.BLOCK)
    for (first, one), (second, other) in product(KINDS.items(), KINDS.items()):
        layer = Linear4bit(64, 48, quant_type="nf4", compress_statistics=False)
        layer.load_state_dict({"weight": weight, "bias": bias})
        layer = layer.to(ctx.place.device).train()
        with torch.no_grad():
            layer(formats.numbers(5, 64, short=True).to(getattr(torch, one)).to(ctx.place.device))
            inputs = formats.numbers(5, 64, seed=7, short=True).to(getattr(torch, other)).to(ctx.place.device)
            found = layer(inputs).cpu()
        computed = second if first == "fp16" else first
        within = 4 * max(UNIT_ROUNDOFF[computed], UNIT_ROUNDOFF[second])
        title = f"{first} first, then {second}"
        yield equal(f"dtype of the outputs: {title}", str(found.dtype), f"torch.{other}")
        wanted: Any = inputs.double().cpu() @ dense.double().T + bias
        yield at_most(f"outputs off: {title}", relative(found, wanted), within)
        held = found.to(getattr(torch, KINDS[computed])).to(found.dtype)
        yield equal(f"outputs that {computed} does not hold: {title}", int((held != found).sum()), 0)


def new_layers() -> dict[str, tuple[Callable[[], Any], Callable[[Any], str], str]]:
    """How a layer is made, how its settings are read, and what these should be."""
    import torch
    from bitsandbytes.nn import Linear4bit, Linear8bitLt

    def four_bit(quant: str, *, double: bool, storage: Any) -> Any:
        given: dict[str, Any] = {"compute_dtype": torch.bfloat16, "compress_statistics": double, "quant_type": quant}
        return lambda: Linear4bit(INPUTS, OUTPUTS, **given, quant_storage=storage)

    def four_bit_settings(layer: Any) -> str:
        weight = layer.weight
        return f"{layer.compute_dtype} {weight.quant_type} {weight.compress_statistics} {weight.quant_storage}"

    def eight_bit_settings(layer: Any) -> str:
        return f"{layer.state.threshold} {layer.state.has_fp16_weights} {layer.weight.has_fp16_weights}"

    return {
        "nf4": (
            four_bit("nf4", double=False, storage=torch.bfloat16),
            four_bit_settings,
            "torch.bfloat16 nf4 False torch.bfloat16",
        ),
        "fp4": (
            four_bit("fp4", double=True, storage=torch.uint8),
            four_bit_settings,
            "torch.bfloat16 fp4 True torch.uint8",
        ),
        "LLM.int8": (
            lambda: Linear8bitLt(INPUTS, OUTPUTS, has_fp16_weights=False, threshold=3.0),
            eight_bit_settings,
            "3.0 False False",
        ),
        "8 bits, trained": (
            lambda: Linear8bitLt(INPUTS, OUTPUTS, has_fp16_weights=True, threshold=2.0),
            eight_bit_settings,
            "2.0 True True",
        ),
    }


@call(GROUP, phase=Phase.LOAD, requires=("bitsandbytes_4bit",))
def layers_before_quantising(_ctx: Context) -> Iterator[Check]:
    """Until a layer quantises, it holds the weight as given, through copies and casts; on meta, it has its shape.

    https://huggingface.co/docs/bitsandbytes/reference/nn/linear4bit and linear8bit.
    """
    import torch
    from accelerate import init_empty_weights

    for title, (make, settings, wanted) in new_layers().items():
        layer = make()
        trains = title == "8 bits, trained"
        kind = "Params4bit" if title in ("nf4", "fp4") else "Int8Params"
        given = formats.numbers(OUTPUTS, INPUTS, seed=2)
        with torch.no_grad():
            layer.weight.copy_(given)
        with init_empty_weights():
            empty = make()
        cast = copy.deepcopy(layer).to(torch.bfloat16)
        for how, each, dtype in (
            ("as made", layer, torch.float32),
            ("copied", copy.deepcopy(layer), torch.float32),
            ("cast", cast, torch.bfloat16),
            ("on meta", empty, torch.float32),
        ):
            where = f"{title}, {how}"
            yield equal(f"class of the weight, {where}", type(each.weight).__name__, kind)
            yield equal(
                f"shape and dtype, {where}",
                f"{tuple(each.weight.shape)} {each.weight.dtype}",
                f"{(OUTPUTS, INPUTS)} {dtype}",
            )
            yield equal(f"features, {where}", f"{each.in_features} {each.out_features}", f"{INPUTS} {OUTPUTS}")
            yield equal(f"weight trains, {where}", each.weight.requires_grad, trains)
            yield equal(f"settings, {where}", settings(each), wanted)
            if how != "on meta":
                differ = int((each.weight.detach() != given.to(dtype)).sum())
                yield equal(f"numbers that differ, {where}", differ, 0)


def default_layers() -> dict[str, tuple[Any, str]]:
    """Layers by the defaults of their classes, and the settings these should give, as ``settings_of`` lists them."""
    import torch
    from bitsandbytes import nn

    sizes, table, brain = (INPUTS, OUTPUTS), (OUTPUTS, quantisation.BLOCK), {"dtype": torch.bfloat16}
    four_bit = "Params4bit False 64 {} {} torch.uint8"
    return {
        "Linear4bit": (nn.Linear4bit(*sizes), f"{four_bit.format('True', 'fp4')} None bias"),
        "LinearFP4": (nn.LinearFP4(*sizes, bias=False), f"{four_bit.format('True', 'fp4')} None"),
        "LinearNF4": (nn.LinearNF4(*sizes), f"{four_bit.format('True', 'nf4')} None bias"),
        "LinearNF4 by arguments": (
            nn.LinearNF4(*sizes, compute_dtype=torch.float16, compress_statistics=False, quant_storage=torch.float16),
            "Params4bit False 64 False nf4 torch.float16 torch.float16 bias",
        ),
        "LinearFP4 by arguments": (
            nn.LinearFP4(*sizes, compute_dtype=torch.float16, compress_statistics=False, quant_storage=torch.float16),
            "Params4bit False 64 False fp4 torch.float16 torch.float16 bias",
        ),
        "Linear8bitLt": (nn.Linear8bitLt(*sizes), "Int8Params True True True 0.0 bias"),
        "Linear8bitLt by arguments": (
            nn.Linear8bitLt(*sizes, bias=False, has_fp16_weights=False, threshold=4.0),
            "Int8Params False False False 4.0",
        ),
        "Embedding4bit": (nn.Embedding4bit(*table), f"{four_bit.format('False', 'fp4')} torch.float32"),
        "Embedding4bit by arguments": (
            nn.Embedding4bit(*table, quant_type="nf4", quant_storage=torch.bfloat16, **brain),
            "Params4bit False 64 False nf4 torch.bfloat16 torch.bfloat16",
        ),
        "EmbeddingNF4 by arguments": (
            nn.EmbeddingNF4(*table, quant_storage=torch.float16, **brain),
            "Params4bit False 64 False nf4 torch.float16 torch.bfloat16",
        ),
        "EmbeddingFP4 by arguments": (
            nn.EmbeddingFP4(*table, quant_storage=torch.float32),
            "Params4bit False 64 False fp4 torch.float32 torch.float32",
        ),
        "EmbeddingFP4": (nn.EmbeddingFP4(*table, **brain), f"{four_bit.format('False', 'fp4')} torch.bfloat16"),
        "EmbeddingNF4": (nn.EmbeddingNF4(*table), f"{four_bit.format('False', 'nf4')} torch.float32"),
        "Embedding8bit": (nn.Embedding8bit(*table, **brain), "Int8Params False False torch.bfloat16"),
    }


def settings_of(layer: Any) -> str:
    """The class of a layer's weight, whether it trains, the settings of both, and a bias if there is one."""
    weight = layer.weight
    found = [type(weight).__name__, weight.requires_grad]
    if found[0] == "Params4bit":
        found += [weight.blocksize, bool(weight.compress_statistics), weight.quant_type, weight.quant_storage]
        found += [layer.dtype if hasattr(layer, "dtype") else layer.compute_dtype]
    else:
        found += [weight.has_fp16_weights]
        found += [layer.dtype] if hasattr(layer, "dtype") else [layer.state.has_fp16_weights, layer.state.threshold]
    return " ".join(str(each) for each in (*found, *(["bias"] if getattr(layer, "bias", None) is not None else [])))


@call(GROUP, phase=Phase.LOAD, requires=("bitsandbytes_4bit", "quantised_embeddings"))
def layers_by_default(_ctx: Context) -> Iterator[Check]:
    """Each class of quantised layers has its documented format, sizes and settings, by default and by its arguments.

    https://huggingface.co/docs/bitsandbytes/reference/nn/linear4bit, linear8bit and embeddings.
    """
    import torch

    for title, (layer, wanted) in default_layers().items():
        yield equal(f"settings: {title}", settings_of(layer), wanted)
        embeds = hasattr(layer, "num_embeddings")
        shape = (OUTPUTS, quantisation.BLOCK if embeds else INPUTS)
        own = (layer.num_embeddings, layer.embedding_dim) if embeds else (layer.out_features, layer.in_features)
        yield equal(f"shape: {title}", str(tuple(layer.weight.shape)), str(shape))
        yield equal(f"sizes: {title}", str(own), str(shape))
        if embeds:  # "load_state_dict(fp16_module.state_dict())", before it is moved
            given = formats.numbers(*shape, seed=2).to(layer.weight.dtype)
            layer.load_state_dict({"weight": given})
            yield equal(f"numbers that differ after loading: {title}", int((layer.weight.data != given).sum()), 0)
        quantised = layer.weight.quant_state if hasattr(layer.weight, "quant_state") else layer.weight.SCB
        yield equal(f"statistics before it quantises: {title}", str(quantised), "None")
        if hasattr(layer.weight, "quant_state"):
            yield equal(f"weight knows its layer: {title}", layer.weight.module is layer, bound=True)
        if getattr(layer, "dtype", None) is not None:
            yield equal(f"dtype of the weight: {title}", str(layer.weight.dtype), str(layer.dtype))
        if getattr(layer, "bias", None) is not None:
            yield equal(
                f"bias: {title}", f"{tuple(layer.bias.shape)} {layer.bias.dtype}", f"({OUTPUTS},) {torch.float32}"
            )
