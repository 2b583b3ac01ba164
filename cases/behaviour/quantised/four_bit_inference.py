"""4-bit layers in evaluation mode and in other dtypes, and what a layer saves after an evaluation.

On CPUs with AVX512-BF16, the first inference repacks a layer's weight for a kernel that computes in bfloat16.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.behaviour.quantised.blockwise import dtypes
from cases.behaviour.quantised.four_bit_layers import FOUR, GROUP, INPUTS, SINGLE, reloaded
from cases.reference import quantisation
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

HALF = 4 * UNIT_ROUNDOFF["bf16"]
BLOCKSIZES = (64, 128, 256)
ROWS = 64


def layer_of_blocks(ctx: Context, weight: Any, bias: Any, blocksize: int, **settings: Any) -> Any:
    """A 4-bit layer that computes in float32; ``Linear4bit`` itself has no argument for the size of blocks."""
    import torch
    from bitsandbytes.nn import Linear4bit, Params4bit

    made = Linear4bit(weight.shape[1], weight.shape[0], compute_dtype=torch.float32, **settings)
    made.weight = Params4bit(weight.clone(), requires_grad=False, blocksize=blocksize, **settings)
    made.bias = torch.nn.Parameter(bias.clone())
    return made.to(ctx.place.device)


def product_of(inputs: Any, weight: Any, bias: Any) -> Any:
    return inputs.detach().cpu().double() @ weight.double().T + bias.double()


@call(GROUP, phase=Phase.INFER, requires=FOUR)
def four_bit_inference_products(ctx: Context) -> Iterator[Check]:
    """In evaluation, a 4-bit layer multiplies by its dequantised weight, with blocks of its size, and has a gradient.

    The gradient is that of a layer that saw no inference before.
    """
    import torch

    for quant, double, blocksize in product(("nf4", "fp4"), (False, True), BLOCKSIZES):
        weight, bias = formats.numbers(ROWS, 256, seed=2), formats.numbers(ROWS, seed=3)
        dense = formats.four_bit(weight, quant, blocksize, double=double)
        settings = {"quant_type": quant, "compress_statistics": double}
        kind = f"{quant}, blocks of {blocksize}{', absmax in 8 bits' if double else ''}"
        errors = []
        layer = layer_of_blocks(ctx, weight, bias, blocksize, **settings).eval()
        for shape in INPUTS:
            inputs = formats.numbers(*shape[:-1], 256).to(ctx.place.device)
            with torch.no_grad():
                errors.append(relative(layer(inputs).cpu(), product_of(inputs, dense, bias)))
        yield at_most(f"outputs off: {kind}", worst(errors), HALF)
        with torch.no_grad():
            found = layer(torch.zeros(5, 256, device=ctx.place.device)).cpu()
        yield at_most(f"outputs of zeros off: {kind}", relative(found, bias.expand(5, -1)), SINGLE)
        layer = layer_of_blocks(ctx, weight, bias, blocksize, **settings).eval()
        inputs, above = formats.numbers(5, 256).to(ctx.place.device).requires_grad_(), formats.numbers(5, ROWS, seed=4)
        found = layer(inputs)
        found.backward(above.to(ctx.place.device))
        yield at_most(
            f"differentiated outputs off: {kind}", relative(found.detach().cpu(), product_of(inputs, dense, bias)), HALF
        )
        yield at_most(f"gradient off: {kind}", relative(inputs.grad.cpu(), above.double() @ dense.double()), SINGLE)


@call(GROUP, phase=Phase.INFER, requires=FOUR)
def four_bit_inference_of_any_size(ctx: Context) -> Iterator[Check]:
    """In evaluation, a 4-bit layer may have any number of outputs, as gates of experts do, and any of inputs."""
    import torch

    for outputs, inputs in ((1, 64), (8, 64), (60, 128), (64, 97)):
        weight, bias = formats.numbers(outputs, inputs, seed=2), formats.numbers(outputs, seed=3)
        dense = formats.four_bit(weight, "nf4", quantisation.BLOCK)
        layer = formats.four_bit_layer(ctx, weight, bias, "nf4", compress_statistics=False).eval()
        given = formats.numbers(5, inputs).to(ctx.place.device)
        kind = f"{outputs} outputs of {inputs} inputs"
        try:
            with torch.no_grad():
                off = relative(layer(given).cpu(), product_of(given, dense, bias))
        except (AssertionError, RuntimeError) as error:  # the other sizes are still worth a check
            yield equal(f"raised: {kind}", f"{type(error).__name__}: {error}"[:80], "nothing")
        else:
            yield at_most(f"outputs off: {kind}", off, HALF)


@call(GROUP, phase=Phase.RELOAD, requires=FOUR)
def four_bit_saved_after_inference(ctx: Context) -> Iterator[Check]:
    """What a 4-bit layer with absmax in 8 bits saves after an evaluation is its weight, and it computes on with it.

    A CPU may keep the largest magnitudes of blocks in bfloat16. ``four_bit_inference_keeps_weights`` asks for more.
    """
    import torch

    weight, bias = formats.numbers(ROWS, 512, seed=2), formats.numbers(ROWS, seed=3)
    inputs = formats.numbers(5, 512).to(ctx.place.device)
    for quant in ("nf4", "fp4"):
        layer = formats.four_bit_layer(ctx, weight, bias, quant, compress_statistics=True)
        dense = formats.four_bit(weight, quant, quantisation.BLOCK, double=True)
        wanted = product_of(inputs, dense, bias)
        before = {name: each.clone() for name, each in layer.state_dict().items()}
        with torch.no_grad():
            layer.eval()(inputs)
        for time in ("once", "twice"):
            kind = f"{quant}, saved {time}"
            after = {name: each.clone() for name, each in layer.state_dict().items()}
            yield equal(f"names: {kind}", "+".join(sorted(after)), "+".join(sorted(before)))
            yield equal(f"packed weights as before: {kind}", after["weight"].equal(before["weight"]), bound=True)
            again = reloaded(ctx, layer, quant, double=True).train()
            yield at_most(
                f"outputs of the loaded layer off: {kind}", relative(again(inputs).detach().cpu(), wanted), HALF
            )
            for mode in (False, True):
                with torch.no_grad():
                    found = layer.train(mode)(inputs).cpu()
                    layer.state_dict()  # unpacks, so that training after an evaluation is not what this compares
                yield at_most(f"outputs off, training={mode}: {kind}", relative(found, wanted), HALF)
            with torch.no_grad():
                layer.eval()(inputs)


@call(GROUP, phase=Phase.FORWARD, requires=FOUR)
def four_bit_compute_dtypes(ctx: Context) -> Iterator[Check]:
    """A 4-bit layer computes in compute_dtype and returns the dtype of its inputs; without one, it takes theirs.

    https://huggingface.co/docs/bitsandbytes/reference/nn/linear4bit
    """
    import torch

    weight, bias = formats.numbers(48, 64, seed=2), formats.numbers(48, seed=3, short=True)
    dense = formats.four_bit(weight, "nf4", quantisation.BLOCK)
    kinds: dict[str, Any] = {**dtypes(), "unset": None}
    for (name, computed), (given, dtype) in product(kinds.items(), dtypes().items()):
        layer = formats.four_bit_layer(ctx, weight, bias, "nf4", compress_statistics=False).train()
        layer.compute_dtype, layer.compute_type_is_set = computed, computed is not None
        inputs = formats.numbers(5, 64, short=True).to(dtype).to(ctx.place.device)
        with torch.no_grad():
            found = layer(inputs).cpu()
        kind = f"{given} inputs, compute_dtype {name}"
        within = 4 * max(UNIT_ROUNDOFF[given], UNIT_ROUNDOFF[given if computed is None else name])
        yield equal(f"dtype of the outputs: {kind}", found.dtype == dtype, bound=True)
        yield at_most(f"outputs off: {kind}", relative(found, product_of(inputs, dense, bias)), within)
        held = found.to(computed or dtype).to(dtype)
        yield equal(f"outputs that compute_dtype does not hold: {kind}", int((held != found).sum()), 0)


@call(GROUP, phase=Phase.BACKWARD, requires=FOUR)
def four_bit_odd_products(ctx: Context) -> Iterator[Check]:
    """4-bit layers with an odd number of inputs or of packed bytes multiply by their weight, as does the gradient."""
    import torch

    for outputs, inputs in ((2, 33), (48, 65), (7, 129), (3, 42)):
        weight, bias = formats.numbers(outputs, inputs, seed=2), formats.numbers(outputs, seed=3)
        dense = formats.four_bit(weight, "nf4", quantisation.BLOCK)
        layer = formats.four_bit_layer(ctx, weight, bias, "nf4", compress_statistics=False).train()
        layer.bias.requires_grad_(requires_grad=False)
        given, above = formats.numbers(5, inputs).to(ctx.place.device), formats.numbers(5, outputs, seed=4)
        kind = f"{outputs} outputs of {inputs} inputs"
        with torch.no_grad():
            yield at_most(f"outputs off: {kind}", relative(layer(given).cpu(), product_of(given, dense, bias)), SINGLE)
        layer(given.requires_grad_()).backward(above.to(ctx.place.device))
        yield at_most(f"gradient off: {kind}", relative(given.grad.cpu(), above.double() @ dense.double()), SINGLE)
