"""Int8 and float8 weights of torchao through transformers' TorchAoConfig, and LoRA over them.

https://huggingface.co/docs/transformers/quantization/torchao
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.apply import compat
from cases.behaviour.low_precision import fp8_adapters, fp8_models
from cases.behaviour.low_precision.fp8_models import LAYERS, SINGLE
from cases.model import tiny
from cases.reference import float8
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "torchao's weights"
TORCHAO = ("torchao",)
STEPS = 127  # of int8, on each side of zero
HALF = 0.5 + 2.0**-6  # of a step: rounding, and a scale that is rounded itself
GRADIENT = 1e-3  # float32 through two blocks


@dataclass(frozen=True)
class WeightConfig:
    """A configuration of torchao, and the spacing of its numbers at a weight: float64, of the same shape."""

    config: str
    spacing: Callable[[Any], Any]


def int8_spacing(weight: Any) -> Any:
    """Equal steps up to the largest number of each output."""
    return (weight.double().abs().amax(dim=1, keepdim=True) / STEPS).expand_as(weight)


def float8_spacing(weight: Any) -> Any:
    """Steps that grow with the number, scaled by the largest number of each output."""
    import torch

    scale = weight.double().abs().amax(dim=1, keepdim=True) / float8.LARGEST["e4m3"]
    exponent = (torch.frexp(weight.double() / scale).exponent - 1).clamp_min(float8.SMALLEST["e4m3"])
    return torch.ldexp(scale.expand_as(weight), exponent - float8.MANTISSA["e4m3"])


INT8 = WeightConfig("Int8WeightOnlyConfig", int8_spacing)
FLOAT8 = WeightConfig("Float8WeightOnlyConfig", float8_spacing)


def quantised(ctx: Context, kind: WeightConfig, **other: Any) -> Any:
    """A float32 model on the device of the rank."""
    import torchao.quantization

    return quantised_by(ctx, getattr(torchao.quantization, kind.config)(), **other)


def quantised_by(ctx: Context, config: Any, **other: Any) -> Any:
    """A model on the device of the rank; on a CPU without a map, in which older transformers see offloaded weights."""
    from transformers import TorchAoConfig

    chosen = TorchAoConfig(quant_type=config)
    folder = fp8_models.saved(fp8_models.filled(), ctx.kept / "plain")
    where = {"device_map": None} if ctx.place.kind == "cpu" else {}
    return fp8_models.loaded(ctx, folder, quantization_config=chosen, **{**where, **other})


def quantised_layers(model: Any) -> int:
    import torch

    return sum(type(layer.weight.data) is not torch.Tensor for layer in fp8_models.linears(model).values())


def read(model: Any) -> dict[str, Any]:
    """The dequantised weights of the layers, float64, on the CPU."""
    return {
        name: layer.weight.dequantize().detach().double().cpu() for name, layer in fp8_models.linears(model).items()
    }


def steps_off(found: Any, weight: Any, kind: WeightConfig) -> float:
    """The largest error of a dequantised weight, in steps of its numbers."""
    return float(((found - weight.double()).abs() / kind.spacing(weight)).max())


def loaded(ctx: Context, kind: WeightConfig) -> Iterator[Check]:
    """Compare the weights with the plain ones, and the logits with those of the weights, dequantised."""
    plain, model = fp8_models.linears(fp8_models.filled()), quantised(ctx, kind)
    yield equal(f"quantised layers, {kind.config}", quantised_layers(model), LAYERS)
    weights = read(model)
    for name, weight in weights.items():
        yield at_most(f"steps off, {name}, {kind.config}", steps_off(weight, plain[name].weight.detach(), kind), HALF)
    wanted = fp8_models.logits(fp8_models.stand_in(weights, rounds=False))
    unquantised = {name: layer.weight.detach() for name, layer in plain.items()}
    other = fp8_models.logits(fp8_models.stand_in(unquantised, rounds=False))
    yield at_least(f"what quantising changes, {kind.config}", relative(other, wanted), 100 * SINGLE)
    yield at_most(f"logits off, {kind.config}", relative(fp8_models.logits(model), wanted), 10 * SINGLE)


@call(GROUP, phase=Phase.FORWARD, requires=TORCHAO)
def torchao_int8_weights(ctx: Context) -> Iterator[Check]:
    """Int8WeightOnlyConfig rounds each output's weights to 255 steps; the logits are those of these weights."""
    yield from loaded(ctx, INT8)


@call(GROUP, phase=Phase.FORWARD, requires=TORCHAO)
def torchao_float8_weights(ctx: Context) -> Iterator[Check]:
    """Float8WeightOnlyConfig rounds scaled weights to float8, and the model gives the logits of these weights."""
    yield from loaded(ctx, FLOAT8)


@call(GROUP, phase=Phase.LOAD, requires=TORCHAO)
def torchao_mapped_to_cpu(ctx: Context) -> Iterator[Check]:
    """A model with TorchAoConfig and device_map={"": "cpu"} is quantised, as on any other device."""
    model = quantised(ctx, INT8, device_map={"": "cpu"})
    yield equal("quantised layers", quantised_layers(model), LAYERS)


@call(GROUP, phase=Phase.RELOAD, requires=TORCHAO)
def torchao_saved_and_reloaded(ctx: Context) -> Iterator[Check]:
    """A model with torchao's int8 weights is saved as documented, and reloads with the same weights and logits."""
    model = quantised(ctx, INT8)
    weights, wanted = read(model), fp8_models.logits(model)
    save(model, ctx.kept / "saved")
    again = fp8_models.loaded(ctx, ctx.kept / "saved", **({"device_map": None} if ctx.place.kind == "cpu" else {}))
    yield equal("quantised layers", quantised_layers(again), LAYERS)
    for name, weight in read(again).items():
        yield equal(f"weights that differ, {name}", fp8_models.different(weight, weights[name]), 0)
    yield at_most("logits off", relative(fp8_models.logits(again), wanted), SINGLE)


def save(model: Any, folder: Path) -> None:
    """Save with pickle where this transformers can, as its documentation says; later versions save safetensors only."""
    known = inspect.signature(type(model).save_pretrained).parameters
    model.save_pretrained(folder, **({"safe_serialization": False} if "safe_serialization" in known else {}))


def lora_gradients(ctx: Context, kind: WeightConfig) -> Iterator[Check]:
    """Compare the gradients of adapters with those over the dequantised weights."""
    base = quantised(ctx, kind)
    weights = read(base)
    found = fp8_adapters.gradients(fp8_adapters.adapted(base))
    wanted = fp8_adapters.gradients(fp8_adapters.adapted(fp8_models.stand_in(weights, rounds=False)))
    for name, exact in wanted.items():
        yield at_least(f"gradient, {name}, {kind.config}", float(exact.norm()), 1e-6)
        yield at_most(f"gradient off, {name}, {kind.config}", relative(found[name], exact), GRADIENT)


@call(GROUP, phase=Phase.BACKWARD, requires=TORCHAO)
def torchao_int8_lora(ctx: Context) -> Iterator[Check]:
    """LoRA over torchao's int8 weights gets the gradients that it gets over the dequantised weights."""
    yield from lora_gradients(ctx, INT8)


@call(GROUP, phase=Phase.BACKWARD, requires=TORCHAO)
def torchao_float8_lora(ctx: Context) -> Iterator[Check]:
    """LoRA over torchao's float8 weights is refused, or gets the gradients of the dequantised weights."""
    base = quantised(ctx, FLOAT8)
    try:
        fp8_adapters.adapted(base)
    except (TypeError, ValueError) as error:  # "only supports int8 weights for now"
        yield equal("refused with its reason", "int8" in str(error), bound=True)
        return
    yield from lora_gradients(ctx, FLOAT8)


@call(GROUP, phase=Phase.MERGE, requires=TORCHAO)
def torchao_int8_merge(ctx: Context) -> Iterator[Check]:
    """Merging LoRA into torchao's int8 weights quantises weight + product again; unmerging returns to the weights."""
    base = quantised(ctx, INT8)
    weights = read(base)
    model = fp8_adapters.adapted(base)
    deltas = {
        tiny.canonical(name): tiny.SCALING
        * layer.lora_B["default"].weight.detach().double().cpu()
        @ layer.lora_A["default"].weight.detach().double().cpu()
        for name, layer in model.named_modules()
        if hasattr(layer, "lora_A")
    }
    yield equal("adapted layers", len(deltas), tiny.LAYERS * len(fp8_models.TARGETS))
    model.merge_adapter()
    for name, found in read(model).items():
        wanted = weights[name] + deltas[name] if name in deltas else weights[name]
        yield at_most(f"steps off, {name}", steps_off(found, wanted, INT8), HALF)
    model.unmerge_adapter()
    for name, found in read(model).items():
        twice = INT8.spacing(weights[name]) + INT8.spacing(weights[name] + deltas.get(name, 0))
        off = float(((found - weights[name]).abs() / twice).max())
        yield at_most(f"steps off after unmerging, {name}", off, HALF)


@call(GROUP, phase=Phase.ADAPT, requires=(*TORCHAO, "torchao_int4"))
def torchao_int4_lora(ctx: Context) -> Iterator[Check]:
    """LoRA over torchao's int4 weights is refused with the reason, or gets the gradients of the dequantised weights.

    The model is quantised on loading, since PEFT takes from it how to quantise merged weights.
    """
    from torchao.quantization import Int4WeightOnlyConfig

    half = compat.load_arguments(models.chosen(dtype="bf16"), ctx.place.device)
    model = quantised_by(ctx, Int4WeightOnlyConfig(group_size=float8.BLOCK), **half)
    try:
        found = fp8_adapters.adapted(model)
    except (TypeError, ValueError) as error:
        yield equal("refused with its reason", "int8" in str(error), bound=True)
        return
    wanted = fp8_adapters.gradients(fp8_adapters.adapted(fp8_models.stand_in(read(model), rounds=False)))
    for name, gradient in fp8_adapters.gradients(found).items():
        yield at_most(f"gradient off, {name}", relative(gradient, wanted[name]), 24 * 2.0**-8)
