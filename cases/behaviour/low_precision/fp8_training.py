"""FP8 training: accelerate's recipe for torchao, whose layers round inputs, weights and gradients in every pass.

https://huggingface.co/docs/accelerate/usage_guides/low_precision_training
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import compat
from cases.behaviour.low_precision import fp8_models
from cases.model import tiny
from cases.reference import float8
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "FP8 training"
RECIPE = ("torchao", "ao_recipe")
WIDTHS = (64, 128, 128, 72, 128, 64)  # 72 is no multiple of 16, which FP8 products need
CONVERTED = ["1"]  # neither the first nor the last layer, and none with 72 inputs or outputs
STEPS, RATE = 4, 0.03125
LOSS = 0.02  # of the first loss; emulated, 0.007
GRADIENT = 0.5  # of a layer's gradient: each product rounds its factors to 2 or 3 bits; emulated, 0.11 to 0.32
MATTERS = 1e-3  # gradients that the rounding changes at least


PRODUCT = 2.0**-8  # of a layer's product: tensor cores keep 14 bits of each sum


def configuration(ctx: Context, **other: Any) -> Any:
    """Settings of torchao; without a GPU, products of numbers that were rounded to FP8."""
    from torchao.float8 import Float8LinearConfig

    return Float8LinearConfig(emulate=ctx.place.kind == "cpu", **other)


def stack() -> Any:
    import torch

    return torch.nn.Sequential(*(torch.nn.Linear(*each) for each in pairwise(WIDTHS)))


def converted(model: Any) -> str:
    named = ((tiny.canonical(name), layer) for name, layer in model.named_modules())
    return str([name for name, layer in named if type(layer).__name__ == "Float8Linear"])


def accelerator(ctx: Context) -> Any:
    """An Accelerator of one process with the recipe, as documented; with its defaults on a GPU."""
    from accelerate import Accelerator
    from accelerate.utils import AORecipeKwargs

    on_cpu = ctx.place.kind == "cpu"
    recipe = AORecipeKwargs(config=configuration(ctx)) if on_cpu else AORecipeKwargs()
    return Accelerator(mixed_precision="fp8", kwargs_handlers=[recipe], cpu=on_cpu)


def rounded(values: Any, kind: str) -> Any:
    """A tensor rounded with one scale: float64."""
    scale = float8.LARGEST[kind] / values.double().abs().max()
    return float8.rounded(values.double() * scale, kind) / scale


@call(GROUP, phase=Phase.WRAP, requires=RECIPE)
def accelerate_fp8_layers(ctx: Context) -> Iterator[Check]:
    """Accelerator.prepare converts each layer with sizes that FP8 takes, except the first and the last."""
    yield equal("layers converted", converted(accelerator(ctx).prepare(stack())), str(CONVERTED))


@call(GROUP, phase=Phase.WRAP, requires=RECIPE)
def convert_model_to_fp8_by_default(ctx: Context) -> Iterator[Check]:
    """Called without a filter, convert_model_to_fp8_ao leaves the first and the last layer as they are.

    "Converts all nn.Linear layers in the model (except the first and last) to torchao's Float8Linear layer inplace."
    """
    from accelerate.utils.ao import convert_model_to_fp8_ao

    model = stack()
    convert_model_to_fp8_ao(model, config=configuration(ctx))
    yield equal("layers converted", converted(model), str(CONVERTED))


@call(GROUP, phase=Phase.BACKWARD, requires=("torchao",))
def float8_linear_products(ctx: Context) -> Iterator[Check]:
    """A Float8Linear of torchao multiplies inputs and weights in e4m3 and gradients in e5m2, each with one scale."""
    import torch
    from torchao.float8 import convert_to_float8_training

    generator = torch.Generator().manual_seed(6)
    inputs, weight, above = (torch.randn(*shape, generator=generator) for shape in ((32, 64), (48, 64), (32, 48)))
    model = torch.nn.Sequential(torch.nn.Linear(64, 48, bias=False)).to(ctx.place.device)
    model[0].weight.data.copy_(weight)
    convert_to_float8_training(model, config=configuration(ctx))
    yield equal("layers converted", converted(model), "['0']")
    given = inputs.to(ctx.place.device).requires_grad_()
    output = model(given)
    output.backward(above.to(ctx.place.device))
    x, w, g = rounded(inputs, "e4m3"), rounded(weight, "e4m3"), rounded(above, "e5m2")
    yield at_least("what rounding changes", relative(x @ w.T, inputs.double() @ weight.double().T), MATTERS)
    yield at_most("output off", relative(output.detach().cpu(), x @ w.T), PRODUCT)
    yield at_most("gradient of the input off", relative(given.grad.cpu(), g @ w), PRODUCT)
    yield at_most("gradient of the weight off", relative(model[0].weight.grad.cpu(), g.T @ x), PRODUCT)


def losses_and_gradients(model: Any, backward: Any, step: Any) -> tuple[list[float], dict[str, Any]]:
    """The losses of some steps, and the gradients of the first one."""
    device = next(model.parameters()).device
    losses, first = [], {}
    for number in range(STEPS):
        ids = tiny.batch(0).to(device)
        loss = model(input_ids=ids, labels=ids).loss
        backward(loss)
        losses.append(loss.item())
        if number == 0:
            first = {name: each.grad.double().cpu().clone() for name, each in tiny.named(model)}
        step.step()
        step.zero_grad()
    return losses, first


@call(GROUP, phase=Phase.BACKWARD, requires=RECIPE)
def accelerate_fp8_trains(ctx: Context) -> Iterator[Check]:
    """Training with mixed_precision="fp8" follows float32 within the rounding of float8, and rounds what it should."""
    import torch

    plain, model = fp8_models.filled(), fp8_models.filled()
    steps = torch.optim.SGD(model.parameters(), lr=RATE)
    made = accelerator(ctx)
    model, steps = made.prepare(model, steps)
    names = [name for name, layer in model.named_modules() if type(layer).__name__ == "Float8Linear"]
    yield equal("layers converted", len(names), fp8_models.LAYERS - 1)  # the head is the last layer
    losses, found = losses_and_gradients(model, made.backward, steps)
    exact, wanted = losses_and_gradients(
        plain, lambda loss: loss.backward(), torch.optim.SGD(plain.parameters(), lr=RATE)
    )
    for number, (loss, other) in enumerate(zip(losses, exact, strict=True)):
        yield at_most(f"loss off, step {number}", abs(loss - other) / exact[0], LOSS)
    yield at_least("what the steps change", abs(exact[0] - exact[-1]) / exact[0], LOSS)
    errors = {name: relative(found[name], each) for name, each in wanted.items()}
    for name, error in errors.items():
        yield at_most(f"gradient off, {name}", error, GRADIENT)
    yield at_least("what rounding changes", max(errors.values()), MATTERS)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=("torchao", "fsdp2_exists", "float8_gather"))
def fsdp2_float8_all_gather(ctx: Context) -> Iterator[Check]:
    """FSDP2 that gathers weights in float8 gives the outputs and gradients of one process with the same layers."""
    import torch
    from torchao.float8 import convert_to_float8_training

    def layers(**other: Any) -> Any:
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
        return convert_to_float8_training(model.to(ctx.place.device), config=configuration(ctx, **other))

    plain, model = layers(), layers(enable_fsdp_float8_all_gather=True)
    yield equal("layers converted", converted(model), "['0', '2']")
    yield equal("class of the weights", type(model[0].weight.data).__name__, "WeightWithDynamicFloat8CastTensor")
    mesh = compat.mesh(ctx.place)
    for layer in (model[0], model[2], model):
        compat.fully_shard()(layer, mesh=mesh)
    inputs = torch.randn(32, 64, generator=torch.Generator().manual_seed(8)).to(ctx.place.device)
    outputs = {}
    for name, each in {"one process": plain, "sharded": model}.items():
        outputs[name] = each(inputs)
        outputs[name].square().mean().backward()
    yield at_most("outputs off", relative(outputs["sharded"].cpu(), outputs["one process"].cpu()), PRODUCT)
    for (name, sharded), whole in zip(model.named_parameters(), plain.parameters(), strict=True):
        yield equal(f"weight is sharded, {name}", len(sharded.to_local()), len(whole) // 2)
        yield at_most(f"gradient off, {name}", relative(sharded.grad.full_tensor().cpu(), whole.grad.cpu()), PRODUCT)
