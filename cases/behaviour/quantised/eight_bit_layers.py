"""8-bit layers: outliers, gradients, weights that are trained, and what is saved."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "8-bit layers"
EIGHT = ("8bit",)
HALF = 4 * UNIT_ROUNDOFF["fp16"]  # inputs and outputs are rounded to half precision
OUTLIERS = (3, 40, 41)  # features
SHAPES = ((5, 64), (2, 3, 64), (1, 64), (2, 64))


def with_outliers(*shape: int) -> Any:
    """Inputs whose outlier features are large in one row, one of them just so, and small in the others."""
    inputs = formats.numbers(*shape, seed=1, short=True).clamp(-4, 4)
    inputs[..., OUTLIERS] = 0.25
    inputs.reshape(-1, shape[-1])[0, list(OUTLIERS)] = inputs.new_tensor([48.0, -60.0, formats.THRESHOLD])
    return inputs


def values() -> tuple[Any, Any]:
    """A weight (48, 64) and a bias (48,)."""
    return formats.numbers(48, 64, seed=2, short=True), formats.numbers(48, seed=3, short=True)


@call(GROUP, phase=Phase.FORWARD, requires=EIGHT)
def int8_outliers(ctx: Context) -> Iterator[Check]:
    """An 8-bit layer multiplies features with outliers in full precision and all others in 8 bits."""
    import torch

    weight, bias = values()
    layer = formats.eight_bit_layer(ctx, weight, bias).eval()
    for shape in SHAPES:
        for kind, inputs in (
            ("outliers", with_outliers(*shape)),
            ("none", formats.numbers(*shape, short=True).clamp(-5, 5)),
        ):
            with torch.no_grad():
                found = layer(inputs.half().to(ctx.place.device)).cpu()
            expected = formats.int8_product(inputs, weight) + bias
            rows = [each.reshape(-1, len(weight)) for each in (found, expected)]  # those with outliers are far larger
            off = worst(relative(one, other) for one, other in zip(*rows, strict=True))
            yield at_most(f"outputs off: {'x'.join(map(str, shape[:-1]))} rows, {kind}", off, 2 * HALF)


@call(GROUP, phase=Phase.BACKWARD, requires=EIGHT)
def int8_input_gradients(ctx: Context) -> Iterator[Check]:
    """The gradient of an 8-bit layer's input is that of its dequantised weight, in training and in evaluation."""
    import torch

    weight, bias = values()
    layer = formats.eight_bit_layer(ctx, weight, bias)
    for shape, trains in product(SHAPES, (True, False)):
        layer.train(trains)
        inputs = formats.numbers(*shape, short=True).to(ctx.place.device).requires_grad_()
        above = formats.numbers(*shape[:-1], len(weight), seed=4, short=True)
        layer.bias.grad = None
        layer(inputs).backward(above.to(ctx.place.device))
        expected = above.double() @ formats.int8_weight(weight)
        kind = f"{shape}, training={trains}"
        yield at_most(f"gradient off: {kind}", relative(gradient(inputs), expected), HALF)
        yield at_most(
            f"gradient of the bias off: {kind}",
            relative(gradient(layer.bias), above.double().reshape(-1, len(weight)).sum(0)),
            HALF,
        )
        yield equal(f"dtype of the gradient: {kind}", inputs.grad.dtype == torch.float32, bound=True)


def gradient(tensor: Any) -> Any:
    import torch

    return torch.zeros(()) if tensor.grad is None else tensor.grad.cpu()


@call(GROUP, phase=Phase.OPTIMIZER, requires=EIGHT)
def int8_trained_weights(ctx: Context) -> Iterator[Check]:
    """An 8-bit layer that keeps its weight quantises it again after each step; its gradient is a plain product."""
    import torch

    weight, bias = values()
    layer = formats.eight_bit_layer(ctx, weight, bias, trained=True, threshold=0.0)
    inputs, above = formats.numbers(5, 64, short=True), formats.numbers(5, len(weight), seed=4, short=True)
    errors = []
    for _ in range(2):
        layer.zero_grad()
        found = layer(inputs.to(ctx.place.device))
        found.backward(above.to(ctx.place.device))
        expected = inputs.double() @ formats.int8_weight(layer.weight.detach().cpu()).T + bias
        errors.append(relative(found.detach().cpu(), expected))
        yield at_most("gradient of the weight off", relative(gradient(layer.weight), above.T @ inputs), ROUNDED)
        with torch.no_grad():
            layer.weight.add_(1.5 * layer.weight.roll(1, 0))
    yield at_most("outputs off", worst(errors), ROUNDED)


@call(GROUP, phase=Phase.OPTIMIZER, requires=EIGHT)
def int8_trained_weights_with_zeroed_gradients(ctx: Context) -> Iterator[Check]:
    """An 8-bit layer that keeps its weight quantises it after each step, also if zero_grad(set_to_none=False) is used.

    torch documents that this keeps tensors of zeros as gradients: the next one is added to them, and nothing else.
    """
    import torch

    weight, bias = values()
    layer = formats.eight_bit_layer(ctx, weight, bias, trained=True, threshold=0.0)
    for step in range(3):
        layer.zero_grad(set_to_none=False)
        total = torch.zeros(5, 64)
        for turn in (1, 2):  # gradients of two passes are added up
            inputs = formats.numbers(5, 64, seed=2 * step + turn, short=True)
            found = layer(inputs.to(ctx.place.device))
            found.backward(torch.ones_like(found))
            expected = inputs.double() @ formats.int8_weight(layer.weight.detach().cpu()).T + bias
            off = relative(found.detach().cpu(), expected)
            yield at_most(f"outputs off, step {step}, pass {turn}", off, ROUNDED)
            total += inputs
            wanted = total.sum(0).expand(len(weight), -1)
            yield at_most(f"gradient off, step {step}, pass {turn}", relative(gradient(layer.weight), wanted), ROUNDED)
        with torch.no_grad():
            layer.weight.add_(1.5 * layer.weight.roll(1, 0))


@call(GROUP, phase=Phase.BACKWARD, requires=EIGHT)
def int8_trained_weights_of_sequences(ctx: Context) -> Iterator[Check]:
    """An 8-bit layer that keeps its weight trains on inputs of three dimensions as on their rows."""
    weight, bias = values()
    layer = formats.eight_bit_layer(ctx, weight, bias, trained=True, threshold=0.0)
    inputs, above = formats.numbers(2, 3, 64, short=True), formats.numbers(2, 3, len(weight), seed=4, short=True)
    layer(inputs.to(ctx.place.device)).backward(above.to(ctx.place.device))
    expected = above.reshape(-1, len(weight)).T @ inputs.reshape(-1, 64)
    yield at_most("gradient of the weight off", relative(gradient(layer.weight), expected), ROUNDED)


ROUNDED = 4 * UNIT_ROUNDOFF["int8"]  # where a GPU quantises the inputs too


@call(GROUP, phase=Phase.RELOAD, requires=EIGHT)
def int8_state_dict(ctx: Context) -> Iterator[Check]:
    """An 8-bit layer saves its quantised weight, scales and layout, before and after a forward, and loads them."""
    import torch

    weight, bias = values()
    layer, other = (formats.eight_bit_layer(ctx, each, bias).eval() for each in (weight, weight.roll(1, 0) * 2))
    inputs = formats.numbers(5, 64, short=True).half().to(ctx.place.device)
    quantised, scale = formats.int8(weight)
    for when in ("before a forward", "after a forward"):
        saved = layer.state_dict()
        yield equal(f"names {when}", "+".join(sorted(saved)), "SCB+bias+weight+weight_format")
        yield at_most(f"weight off {when}", float((saved["weight"].cpu() - quantised).abs().mean()), TIES)
        yield at_most(f"scales off {when}", relative(saved["SCB"].cpu(), scale.flatten()), HALF)
        yield equal(f"layout {when}", f"{int(saved['weight_format'])} {saved['weight_format'].dtype}", ROWS)
        with torch.no_grad():
            expected = layer(inputs)
    other.load_state_dict(layer.state_dict())
    with torch.no_grad():
        yield at_most("outputs of the loaded layer off", relative(other(inputs), expected), 0.0)


TIES = 0.01  # the share of numbers halfway between two steps, which rounding in float32 may move by one
ROWS = "0 torch.uint8"  # "row" in bitsandbytes.utils.LINEAR_8BIT_WEIGHTS_FORMAT_MAPPING
