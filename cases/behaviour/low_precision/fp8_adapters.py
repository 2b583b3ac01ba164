"""LoRA over layers with 8-bit floating-point weights: dtypes of the adapters, gradients through the layers, training.

https://huggingface.co/docs/peft/developer_guides/quantization
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.behaviour.low_precision import fp8_models
from cases.behaviour.low_precision.fp8_checkpoints import COMPUTES
from cases.model import adapter_start, tiny
from cases.reference import float8
from cases.reference.tolerance import relative
from cases.space.options import Options
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "LoRA over FP8 weights"
EXACT = 1e-3  # of the gradient of an input: one product in float32, or in tensor cores with 10 bits
GRADIENT = 0.2  # of an adapter's gradient: rounded inputs of 14 layers may fall on other sides


def adapted(model: Any) -> Any:
    """LoRA with values that are not zero, in float32 if PEFT makes it in float8, which nothing computes with."""
    from peft import get_peft_model

    found = get_peft_model(model, models.config(target_modules=list(fp8_models.TARGETS)))
    for each in adapters(found).values():
        if each.element_size() == 1:
            each.data = each.data.float()
    adapter_start.start(found, Options())
    return found


def adapters(model: Any) -> dict[str, Any]:
    return {name: each for name, each in tiny.named(model) if tiny.is_adapter(name)}


def weights() -> dict[str, Any]:
    """The dequantised weights of the reference's FP8 checkpoint, float64."""
    found = fp8_models.linears(fp8_models.filled())
    return {name: float8.dequantised(*float8.blocks(each.weight.detach())) for name, each in found.items()}


def gradients(model: Any) -> dict[str, Any]:
    """The gradients of the adapters after one batch, float64, on the CPU; zeros where there is none."""
    import torch

    ids = models.ids(model)
    model(input_ids=ids, labels=ids).loss.backward()
    return {
        name: torch.zeros(each.shape, dtype=torch.float64) if each.grad is None else each.grad.double().cpu()
        for name, each in adapters(model).items()
    }


@call(GROUP, phase=Phase.ADAPT)
def fp8_adapter_dtypes(ctx: Context) -> Iterator[Check]:
    """Adapters of a layer with float8 weights are made in float32, in which an optimiser can change them."""
    import torch
    from peft import get_peft_model

    model = fp8_models.filled().to(ctx.place.device)
    for layer in fp8_models.linears(model).values():
        layer.weight = torch.nn.Parameter(layer.weight.detach().to(torch.float8_e4m3fn), requires_grad=False)
    found = adapters(get_peft_model(model, models.config(target_modules=list(fp8_models.TARGETS))))
    yield equal("adapters", len(found), 2 * len(fp8_models.TARGETS) * tiny.LAYERS)
    yield equal("dtypes of adapters", "+".join(sorted({str(each.dtype) for each in found.values()})), "torch.float32")


@call(GROUP, phase=Phase.BACKWARD, requires=COMPUTES)
def fp8_input_gradients(ctx: Context) -> Iterator[Check]:
    """The gradient that a layer with FP8 weights gives its input is that of its dequantised weight.

    Adapters of earlier layers learn through it.
    """
    import torch

    folder = fp8_models.fp8_checkpoint(fp8_models.filled(), ctx.kept / "fp8")
    layers = fp8_models.linears(fp8_models.loaded(ctx, folder))
    for name, weight in weights().items():
        generator = torch.Generator().manual_seed(5)
        inputs = torch.randn(16, weight.shape[1], generator=generator).to(ctx.place.device).requires_grad_()
        above = torch.randn(16, weight.shape[0], generator=generator)
        output = layers[name](inputs)
        yield equal(f"output is differentiable, {name}", output.requires_grad, bound=True)
        if output.requires_grad:
            output.backward(above.to(ctx.place.device))
            yield at_most(f"gradient off, {name}", relative(inputs.grad.double().cpu(), above.double() @ weight), EXACT)


@call(GROUP, phase=Phase.BACKWARD, requires=COMPUTES)
def fp8_lora_gradients(ctx: Context) -> Iterator[Check]:
    """LoRA over an FP8 checkpoint gets the gradients that it gets over the dequantised weights."""
    folder = fp8_models.fp8_checkpoint(fp8_models.filled(), ctx.kept / "fp8")
    found = gradients(adapted(fp8_models.loaded(ctx, folder)))
    wanted = gradients(adapted(fp8_models.stand_in(weights(), rounds=True)))
    for name, exact in wanted.items():
        yield at_least(f"gradient, {name}", float(exact.norm()), 1e-6)
        yield at_most(f"gradient off, {name}", relative(found[name], exact), GRADIENT)


@call(GROUP, phase=Phase.MERGE, requires=COMPUTES)
def fp8_lora_merged(ctx: Context) -> Iterator[Check]:
    """Merging LoRA into FP8 weights is refused, or gives the dequantised weights plus the adapter's product.

    An error of torch counts as a refusal, if it leaves the weights as they were.
    """
    folder = fp8_models.fp8_checkpoint(fp8_models.filled(), ctx.kept / "fp8")
    model = adapted(fp8_models.loaded(ctx, folder))
    deltas = {}
    for name, layer in model.named_modules():
        if hasattr(layer, "lora_A"):
            a, b = (each["default"].weight.detach().double().cpu() for each in (layer.lora_A, layer.lora_B))
            deltas[tiny.canonical(name)] = tiny.SCALING * b @ a
    yield equal("adapted layers", len(deltas), tiny.LAYERS * len(fp8_models.TARGETS))
    before = {name: values for name, (values, _) in fp8_models.held(model).items()}
    try:
        merged = model.merge_and_unload()
    except (RuntimeError, TypeError, ValueError):
        after = fp8_models.held(model)
        changed = [name for name, values in before.items() if fp8_models.different(after[name][0], values)]
        yield equal("weights that a refused merge changed", len(changed), 0)
        return
    plain = weights()
    for name, layer in fp8_models.linears(merged).items():
        if name in deltas:
            weight = layer.weight.detach().double().cpu()
            scales = getattr(layer, "weight_scale_inv", None)
            found = weight if scales is None else float8.dequantised(weight, scales.detach().cpu())
            change = relative(found - plain[name], deltas[name])
            yield at_most(f"merged change off, {name}", change, rounding_of_change(plain[name], deltas[name]))


def rounding_of_change(weight: Any, delta: Any) -> float:
    """Twice the error that rounding the sum in blocks leaves, relative to the change."""
    total = weight + delta
    return 2 * relative(float8.dequantised(*float8.blocks(total)) - weight, delta)
