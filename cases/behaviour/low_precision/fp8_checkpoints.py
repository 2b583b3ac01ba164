"""Llama checkpoints with 8-bit floating-point weights in blocks of 128 x 128: transformers' FineGrainedFP8Config.

https://huggingface.co/docs/transformers/quantization/finegrained_fp8
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.low_precision import fp8_models
from cases.behaviour.low_precision.fp8_models import LAYERS, different
from cases.reference import float8
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "FP8 weights in blocks"
ON_GPU = ("fp8_config", "fp8_gpu")
COMPUTES = (*ON_GPU, "fp8_kernel")
SCALE = 2.0**-22  # of a scale that is divided twice in float32
HALFWAY = 0.02  # the share of weights that the last bit of a scale moves to another number; found: 0.004
MOVED = 0.01  # of weights, of which that share moved by a step
ONE_STEP = 2.0**-3  # of a weight that is rounded to the other side
PRODUCT = 2.0**-8  # of a layer's product: tensor cores add products of FP8 numbers with about 14 bits
LOGITS = 0.1  # some inputs fall on the other side of a middle, in 14 layers; with exact products, 0.03
GROUPS = 2 * PRODUCT  # of a product: rounding its input changes it by about 0.02


def quantised(ctx: Context, folder: Path, **other: Any) -> Any:
    """A plain checkpoint, quantised on loading."""
    from transformers import FineGrainedFP8Config

    return fp8_models.loaded(ctx, folder, quantization_config=FineGrainedFP8Config(**other))


def dequantised(found: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {name: float8.dequantised(*pair) for name, pair in found.items()}


@call(GROUP, phase=Phase.LOAD, requires=ON_GPU)
def fp8_quantised_on_loading(ctx: Context) -> Iterator[Check]:
    """FineGrainedFP8Config rounds each block of 128 x 128 weights with its own scale, in every layer but the head."""
    import torch

    plain = fp8_models.filled()
    model = quantised(ctx, fp8_models.saved(plain, ctx.kept / "plain"))
    found = {name: layer for name, layer in fp8_models.linears(model).items() if layer.weight.element_size() == 1}
    yield equal("layers with 8-bit weights", len(found), LAYERS)
    yield equal("dtype of the head", str(model.lm_head.weight.dtype), "torch.float32")
    held = fp8_models.held(model)
    for name, layer in fp8_models.linears(plain).items():
        values, scales = float8.blocks(layer.weight.detach())
        rounded, given = held[name]
        yield equal(f"shape of scales, {name}", str(tuple(given.shape)), str(tuple(scales.shape)))
        yield at_most(f"scales off, {name}", float(((given - scales) / scales).abs().max()), SCALE)
        yield at_most(f"share of weights that differ, {name}", float((rounded != values).double().mean()), HALFWAY)
        off = (rounded - values).abs() / values.abs().clamp_min(torch.finfo(torch.float32).tiny)
        yield at_most(f"largest difference, {name}", float(off.max()), ONE_STEP)


@call(GROUP, phase=Phase.LOAD, requires=ON_GPU)
def fp8_layers_of_one_block(ctx: Context) -> Iterator[Check]:
    """A layer with 128 outputs or inputs has one row or column of scales, as k_proj and v_proj of small models have."""
    sizes = {"num_key_value_heads": 2}  # of four: 128 outputs
    plain = fp8_models.filled(**sizes)
    model = quantised(ctx, fp8_models.saved(plain, ctx.kept / "plain"))
    for name, (values, scales) in fp8_models.held(model).items():
        if name.endswith(("k_proj", "v_proj")):
            yield equal(f"shape of scales, {name}", str(tuple(scales.shape)), "(1, 2)")
            if scales.ndim != values.ndim:
                continue  # the check above says so; such scales do not tell which blocks are theirs
            wanted = fp8_models.linears(plain)[name].weight.detach()
            exact = float8.dequantised(*float8.blocks(wanted))
            yield at_most(f"weights off, {name}", relative(float8.dequantised(values, scales), exact), MOVED)


@call(GROUP, phase=Phase.LOAD, requires=ON_GPU)
def fp8_blocks_of_zeros(ctx: Context) -> Iterator[Check]:
    """A block of zeros, as padded and pruned layers have, stays zero when a model is quantised on loading."""
    plain = fp8_models.filled()
    layer = fp8_models.linears(plain)[fp8_models.CHANGED]
    layer.weight.data[: float8.BLOCK, : float8.BLOCK] = 0
    model = quantised(ctx, fp8_models.saved(plain, ctx.kept / "plain"))
    found = float8.dequantised(*fp8_models.held(model)[fp8_models.CHANGED])
    exact = float8.dequantised(*float8.blocks(layer.weight.detach()))
    yield equal("numbers that are not finite", int((~found.isfinite()).sum()), 0)
    yield at_most("weights off", relative(found, exact), MOVED)


@call(GROUP, phase=Phase.RELOAD, requires=ON_GPU)
def fp8_saved_and_reloaded(ctx: Context) -> Iterator[Check]:
    """A model that was quantised on loading is saved with its 8-bit weights and scales, and reloads with the same."""
    import torch
    from safetensors.torch import load_file

    model = quantised(ctx, fp8_models.saved(fp8_models.filled(), ctx.kept / "plain"))
    held = fp8_models.held(model)
    stored = load_file(fp8_models.saved(model, ctx.kept / "saved") / "model.safetensors")
    again = fp8_models.held(fp8_models.loaded(ctx, ctx.kept / "saved"))
    yield equal("layers reloaded", len(again), LAYERS)
    for name, (values, scales) in held.items():
        weight = stored[f"{name}.weight"]
        yield equal(f"dtype in the file, {name}", str(weight.dtype), "torch.float8_e4m3fn")
        yield equal(f"weights in the file that differ, {name}", different(weight.double(), values), 0)
        yield equal(f"scales in the file that differ, {name}", different(stored[f"{name}.weight_scale_inv"], scales), 0)
        yield equal(f"weights that differ, {name}", different(again[name][0], values), 0)
        yield equal(f"scales that differ, {name}", different(again[name][1], scales), 0)
    yield equal("a scale is a number", bool(torch.isfinite(next(iter(held.values()))[1]).all()), bound=True)


@call(GROUP, phase=Phase.FORWARD, requires=COMPUTES)
def fp8_checkpoint_forward(ctx: Context) -> Iterator[Check]:
    """A released FP8 checkpoint gives the logits of its dequantised weights on inputs rounded in groups of 128."""
    plain = fp8_models.filled()
    model = fp8_models.loaded(ctx, fp8_models.fp8_checkpoint(plain, ctx.kept / "fp8"))
    held = fp8_models.held(model)
    for name, layer in fp8_models.linears(plain).items():
        values, scales = float8.blocks(layer.weight.detach())
        yield equal(f"weights that differ, {name}", different(held[name][0], values), 0)
        yield equal(f"scales that differ, {name}", different(held[name][1], scales), 0)
    weights, passes = dequantised(held), {}
    for name, layer in fp8_models.linears(model).items():
        layer.register_forward_hook(lambda _, given, made, name=name: passes.update({name: (given[0], made)}))
    found = fp8_models.logits(model)
    yield equal("layers that ran", len(passes), len(held))
    for name, (given, made) in passes.items():
        exact, rounded = given.double().cpu() @ weights[name].T, float8.groups(given.cpu()) @ weights[name].T
        yield at_least(f"what rounding the input changes, {name}", relative(rounded, exact), GROUPS)
        yield at_most(f"product off, {name}", relative(made.cpu(), rounded), PRODUCT)
    wanted = fp8_models.logits(fp8_models.stand_in(weights, rounds=True))
    yield at_most("logits off", relative(found, wanted), LOGITS)


@call(GROUP, phase=Phase.LOAD, requires=("fp8_config", "fp8_dequantize"))
def fp8_dequantised_on_loading(ctx: Context) -> Iterator[Check]:
    """FineGrainedFP8Config(dequantize=True) loads a released FP8 checkpoint as 8-bit values times their scales."""
    from transformers import FineGrainedFP8Config

    plain = fp8_models.filled()
    folder = fp8_models.fp8_checkpoint(plain, ctx.kept / "fp8")
    model = fp8_models.loaded(ctx, folder, quantization_config=FineGrainedFP8Config(dequantize=True))
    for name, layer in fp8_models.linears(model).items():
        exact = float8.dequantised(*float8.blocks(fp8_models.linears(plain)[name].weight.detach()))
        yield equal(f"class, {name}", type(layer).__name__, "Linear")
        rounding = {2: 2.0**-8, 4: fp8_models.SINGLE}[layer.weight.element_size()]  # bfloat16 or float32
        yield at_most(f"weights off, {name}", relative(layer.weight.detach().double().cpu(), exact), rounding)
