"""4-bit weights of every block size, shape and format, and the layers that hold them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.reference import quantisation
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "4-bit layers"
FOUR = ("4bit",)
SINGLE = 16 * UNIT_ROUNDOFF["fp32"]
BLOCKSIZES = (64, 128, 256, 512, 1024, 2048, 4096)
HALFWAY = 0.05  # the share of short numbers that may lie halfway between two levels
INPUTS = ((5, 64), (2, 3, 64), (1, 64))


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_blocksizes(ctx: Context) -> Iterator[Check]:
    """A tensor quantised in blocks of any documented size dequantises to the nearest levels of each block's largest."""
    yield from of_all_formats(ctx, [((3, 2 * blocksize), blocksize) for blocksize in BLOCKSIZES])


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_blocks_of_several_rows(ctx: Context) -> Iterator[Check]:
    """A block of 2048 or 4096 numbers may hold several rows of a tensor."""
    yield from of_all_formats(ctx, [((16, 1024), 2048), ((12, 512), 2048), ((8, 1024), 4096), ((5, 2048), 4096)])


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_dimensions(ctx: Context) -> Iterator[Check]:
    """A tensor of three or four dimensions, as the experts of a layer are, dequantises like a matrix."""
    yield from shapes_kept(ctx, ((4, 8, 64), (3, 5, 128), (2, 3, 2, 256), (2, 6, 65), (1, 64)))


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_vectors(ctx: Context) -> Iterator[Check]:
    """A vector dequantises to a vector."""
    yield from shapes_kept(ctx, ((256,), (129,)))


def shapes_kept(ctx: Context, shapes: Sequence[tuple[int, ...]]) -> Iterator[Check]:
    """Compare shapes and values."""
    for shape in shapes:
        weight = formats.numbers(*shape)
        found = through(ctx, weight, "nf4", quantisation.BLOCK, double=False)
        expected = formats.four_bit(weight, "nf4", quantisation.BLOCK)
        yield equal(f"shape of {shape}", str(tuple(found.shape)), str(shape))
        yield at_most(f"values off: {shape}", relative(found.flatten(), expected.flatten()), SINGLE)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_without_state(ctx: Context) -> Iterator[Check]:
    """dequantize_4bit without a state takes the largest magnitudes, the type and the output from its arguments.

    Blocks have 64 numbers by default: https://huggingface.co/docs/bitsandbytes/reference/functional.
    """
    import torch
    from bitsandbytes import functional

    for quant, blocksize in (("nf4", None), ("fp4", None), ("nf4", 128)):
        size = quantisation.BLOCK if blocksize is None else blocksize
        weight = formats.numbers(6, 256)
        packed, state = functional.quantize_4bit(weight.to(ctx.place.device), blocksize=size, quant_type=quant)
        out = torch.empty(weight.shape, device=ctx.place.device)
        more = {} if blocksize is None else {"blocksize": blocksize}
        functional.dequantize_4bit(packed, absmax=state.absmax, out=out, quant_type=quant, **more)
        expected = formats.four_bit(weight, quant, size)
        yield at_most(f"values off: {quant}, blocksize={blocksize}", relative(out.cpu(), expected), SINGLE)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_odd_rows(ctx: Context) -> Iterator[Check]:
    """A tensor whose rows have an odd number of weights dequantises like any other, its last block included."""
    yield from of_all_formats(ctx, [(shape, size) for shape in ((7, 33), (48, 65)) for size in BLOCKSIZES[:3]])


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_rows_of_partial_blocks(ctx: Context) -> Iterator[Check]:
    """A tensor whose rows are not a whole number of blocks dequantises like any other.

    Blocks go through the whole tensor. SigLIP's feed-forward layers, with rows of 4304 weights, are such tensors.
    """
    yield from of_all_formats(ctx, [((64, 96), 64), ((16, 4304), 64), ((12, 320), 128), ((16, 100), 256)])


def of_all_formats(ctx: Context, tensors: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[Check]:
    """Compare tensors, each with its block size, in every format."""
    for quant in ("nf4", "fp4"):
        for double in (False, True):
            errors = [
                relative(
                    through(ctx, weight, quant, blocksize, double=double),
                    formats.four_bit(weight, quant, blocksize, double=double),
                )
                for weight, blocksize in ((formats.numbers(*shape), blocksize) for shape, blocksize in tensors)
            ]
            yield at_most(f"values off: {quant}{', absmax in 8 bits' if double else ''}", worst(errors), SINGLE)


def through(ctx: Context, weight: Any, quant: str, blocksize: int, *, double: bool) -> Any:
    """A tensor that bitsandbytes quantised and dequantised."""
    from bitsandbytes import functional

    packed, state = functional.quantize_4bit(
        weight.to(ctx.place.device), blocksize=blocksize, compress_statistics=double, quant_type=quant
    )
    return functional.dequantize_4bit(packed, state).cpu()


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_dtypes(ctx: Context) -> Iterator[Check]:
    """A half-precision tensor dequantises to its own dtype, within that dtype's rounding."""
    import torch
    from bitsandbytes import functional

    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        for quant in ("nf4", "fp4"):
            weight = formats.numbers(64, 128, short=True).to(dtype)
            found = functional.dequantize_4bit(
                *functional.quantize_4bit(weight.to(ctx.place.device), quant_type=quant)
            ).cpu()
            wanted = formats.four_bit(weight.float(), quant, quantisation.BLOCK)
            yield equal(f"dtype: {quant}, {name}", found.dtype == dtype, bound=True)
            off = (found.float() - wanted).abs() > 2 * UNIT_ROUNDOFF[name] * wanted.abs()
            yield at_most(f"share of values off: {quant}, {name}", float(off.float().mean()), HALFWAY)


@call(GROUP, phase=Phase.BACKWARD, requires=FOUR)
def four_bit_products(ctx: Context) -> Iterator[Check]:
    """A 4-bit layer multiplies by its dequantised weight, for every number of dimensions, and so does its gradient."""
    weight, bias = formats.numbers(48, 64, seed=2), formats.numbers(48, seed=3)
    for quant in ("nf4", "fp4"):
        for double in (False, True):
            dense = formats.four_bit(weight, quant, quantisation.BLOCK, double=double).double()
            layer = formats.four_bit_layer(ctx, weight, bias, quant, compress_statistics=double)
            outputs, gradients = [], []
            for shape in INPUTS:
                inputs = formats.numbers(*shape).to(ctx.place.device).requires_grad_()
                above = formats.numbers(*shape[:-1], len(weight), seed=4)
                found = layer(inputs)
                found.backward(above.to(ctx.place.device))
                outputs.append(relative(found.detach().cpu(), inputs.detach().cpu().double() @ dense.T + bias))
                gradients.append(relative(inputs.grad.cpu(), above.double() @ dense))
            kind = f"{quant}{', absmax in 8 bits' if double else ''}"
            yield at_most(f"outputs off: {kind}", worst(outputs), SINGLE)
            yield at_most(f"gradient off: {kind}", worst(gradients), SINGLE)


@call(GROUP, phase=Phase.BACKWARD, requires=FOUR)
def four_bit_bias_gradients(ctx: Context) -> Iterator[Check]:
    """The gradient of a 4-bit layer's bias is the sum over all rows, added up in the dtype in which the layer computes.

    Autocast changes the dtype of the outputs, and so of their gradients, but no sum of them.
    """
    import torch

    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    weight, bias = formats.numbers(48, 64, seed=2), formats.numbers(48, seed=3)
    for (name, computed), mixed, shape in product(kinds.items(), (False, True), ((300,), (7, 60))):
        layer = formats.four_bit_layer(ctx, weight, bias, "nf4").train()
        layer.compute_dtype = computed
        inputs = formats.numbers(*shape, 64, short=True).to(ctx.place.device)
        with torch.autocast(ctx.place.kind, torch.bfloat16, enabled=mixed):
            found = layer(inputs.to(computed))
        # All of one sign and exact in bfloat16, so that a sum in fewer bits is further off than one in more.
        above = formats.numbers(*shape, 48, seed=4, short=True).abs().to(found)
        found.backward(above)
        title = f"{name}, autocast={mixed}, {'x'.join(map(str, shape))}"
        wanted = above.double().cpu().reshape(-1, 48).sum(0)
        yield at_most(
            f"gradient of the bias off: {title}", relative(layer.bias.grad.cpu(), wanted), 4 * UNIT_ROUNDOFF[name]
        )


@call(GROUP, phase=Phase.RELOAD, requires=FOUR)
def four_bit_copies(ctx: Context) -> Iterator[Check]:
    """A copy of a 4-bit layer, by deepcopy or pickle or its state dict, gives the layer's outputs."""
    import copy
    import pickle

    import torch

    weight, bias = formats.numbers(48, 64, seed=2), formats.numbers(48, seed=3)
    inputs = formats.numbers(5, 64).to(ctx.place.device)
    for quant, double in (("nf4", True), ("fp4", False)):
        layer = formats.four_bit_layer(ctx, weight, bias, quant, compress_statistics=double)
        copies = {
            "deepcopy": copy.deepcopy(layer),
            "pickle": pickle.loads(pickle.dumps(layer)),  # noqa: S301 - of this process
            "state dict": reloaded(ctx, layer, quant, double=double),
            "move": copy.deepcopy(layer).to(ctx.place.device),
        }
        with torch.no_grad():
            wanted = layer.train()(inputs)
            for name, each in copies.items():
                yield at_most(f"outputs off: {quant}, {name}", relative(each.train()(inputs), wanted), 0.0)


def reloaded(ctx: Context, layer: Any, quant: str, *, double: bool) -> Any:
    """A layer made from the state dict of another, as a checkpoint is loaded."""
    import torch
    from bitsandbytes.nn import Linear4bit, Params4bit

    saved = {name: each.clone() for name, each in layer.state_dict().items()}
    made = Linear4bit(
        layer.in_features,
        layer.out_features,
        quant_type=quant,
        compute_dtype=torch.float32,
        compress_statistics=double,
        device="meta",
    )
    statistics = {name.removeprefix("weight."): each for name, each in saved.items() if name.startswith("weight.")}
    made.weight = Params4bit.from_prequantized(saved["weight"], statistics, device=ctx.place.device)
    made.bias = torch.nn.Parameter(saved["bias"])
    return made


@call(GROUP, phase=Phase.RELOAD, requires=FOUR)
def four_bit_inference_keeps_weights(ctx: Context) -> Iterator[Check]:
    """Inference with a 4-bit layer leaves what it saves, and what training computes after it, as they were."""
    import torch

    weight, bias = formats.numbers(64, 64, seed=2), formats.numbers(64, seed=3)
    inputs = formats.numbers(5, 64).to(ctx.place.device)
    for double in (False, True):
        layer = formats.four_bit_layer(ctx, weight, bias, "nf4", compress_statistics=double)
        with torch.no_grad():
            before = layer.train()(inputs)
            saved = {name: each.clone() for name, each in layer.state_dict().items()}
            layer.eval()(inputs.bfloat16())
            after = layer.state_dict()
            changed = [name for name in sorted(saved) if not same(saved[name], after.get(name))]
            kind = "absmax in 8 bits" if double else "absmax in full"
            yield equal(f"saved tensors that changed: {kind}", "+".join(changed) or "none", "none")
            yield at_most(f"outputs off: {kind}", relative(layer.train()(inputs), before), 0.0)


def same(one: Any, other: Any) -> bool:
    import torch

    return other is not None and one.shape == other.shape and torch.equal(one, other)
