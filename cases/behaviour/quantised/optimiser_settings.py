"""Settings of bitsandbytes' optimisers by every way that sets them: overrides, least sizes, and default dtypes.

https://huggingface.co/docs/bitsandbytes/optimizers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "8-bit optimisers"
STEP = ("adamw_8bit_step",)
SIZE = 4196
RATE = 1e-3
# The classes with states in 8 bits whose constructors take min_8bit_size.
CLASSES = ("Adam8bit", "AdamW8bit", "Adagrad8bit", "RMSprop8bit", "SGD8bit", "Lion8bit", "LAMB8bit", "AdEMAMix8bit")


def made(name: str, parameters: list[Any], **more: Any) -> Any:
    from bitsandbytes import optim

    extra = {"momentum": 0.9} if name.startswith(("SGD", "RMSprop")) else {}
    return getattr(optim, name)(parameters, lr=RATE, **extra, **more)


def weights(ctx: Context, *sizes: int) -> list[Any]:
    import torch

    return [torch.nn.Parameter(formats.numbers(size).to(ctx.place.device)) for size in sizes]


def step(optimiser: Any, parameters: list[Any], number: int = 1) -> None:
    for each in parameters:
        each.grad = formats.numbers(each.numel(), seed=10 + number).to(each.device).to(each.dtype)
    optimiser.step()


def kinds(optimiser: Any, parameters: list[Any]) -> str:
    return " ".join(str(optimiser.state[each]["state1"].dtype).removeprefix("torch.") for each in parameters)


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def least_sizes_of_8_bits(ctx: Context) -> Iterator[Check]:
    """min_8bit_size decides, for every class, from how many numbers on a tensor's states have 8 bits; 4096 by default.

    A tensor of exactly that size has them.
    """
    from bitsandbytes import optim

    for name in (each for each in CLASSES if hasattr(optim, each)):
        for least, sizes in ((None, (4095, 4096)), (8192, (4196, 8191, 8192)), (256, (255, 256))):
            held = weights(ctx, *sizes)
            more = {} if least is None else {"min_8bit_size": least}
            optimiser = made(name, held, **more)
            step(optimiser, held)
            bound = 4096 if least is None else least
            wanted = " ".join("uint8" if size >= bound else "float32" for size in sizes)
            yield equal(f"dtypes of states, {name}, {least}", kinds(optimiser, held), wanted)


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def overrides_by_every_way(ctx: Context) -> Iterator[Check]:
    """override_config takes a key and a value or a dictionary, for one parameter or several, one after another.

    register_module_override does so for a parameter of a module by its name. What nobody overrode stays.
    """
    import torch
    from bitsandbytes.optim import GlobalOptimManager

    manager = GlobalOptimManager.get_instance()

    def by_key(held: list[Any]) -> None:
        manager.override_config(held[0], "optim_bits", 32)

    def by_dictionary(held: list[Any]) -> None:
        manager.override_config(held[0], key_value_dict={"optim_bits": 32})

    def by_both(held: list[Any]) -> None:
        manager.override_config(held[0], "lr", RATE / 4)
        manager.override_config(held[0], "optim_bits", 32)

    def of_two(held: list[Any]) -> None:
        manager.override_config([held[0], held[1]], "optim_bits", 32)

    ways: Mapping[str, tuple[Any, str]] = {
        "a key and a value": (by_key, "float32 uint8 uint8"),
        "a dictionary": (by_dictionary, "float32 uint8 uint8"),
        "one key after another": (by_both, "float32 uint8 uint8"),
        "two parameters": (of_two, "float32 float32 uint8"),
    }
    for title, (override, wanted) in ways.items():
        manager.initialize()
        held = weights(ctx, SIZE, SIZE, SIZE)
        manager.register_parameters(held)
        override(held)
        optimiser = made("Adam8bit", held)
        before = held[0].detach().clone()
        step(optimiser, held)
        yield equal(f"dtypes of states, {title}", kinds(optimiser, held), wanted)
        if "after" in title:  # Adam's first step is the rate for each number but the smallest
            moved = float((held[0].detach() - before).abs().median())
            yield equal(f"rate of the first, {title}", round(moved / RATE, 3), 0.25)
    manager.initialize()
    layer = torch.nn.Linear(70, 70).to(ctx.place.device)
    other = torch.nn.Linear(70, 70).to(ctx.place.device)
    manager.register_module_override(layer, "weight", {"optim_bits": 32})
    held = [layer.weight, other.weight]
    manager.register_parameters(held)
    optimiser = made("Adam8bit", held)
    step_of_layers(optimiser, held)
    yield equal("dtypes of states, a module", kinds(optimiser, held), "float32 uint8")
    manager.initialize()


def step_of_layers(optimiser: Any, held: list[Any]) -> None:
    for each in held:
        each.grad = formats.numbers(each.numel(), seed=11).to(each.device).reshape(each.shape)
    optimiser.step()


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def optimisers_under_default_dtypes(ctx: Context) -> Iterator[Check]:
    """torch.set_default_dtype changes neither the states of bitsandbytes' 8-bit optimisers nor a step.

    LAMB is left out: its vector of norms takes the default dtype.
    """
    import torch
    from bitsandbytes import optim

    before = torch.get_default_dtype()
    gradients = [formats.numbers(SIZE, seed=10 + number).to(ctx.place.device) for number in (1, 2)]
    for name in (each for each in CLASSES if hasattr(optim, each) and each != "LAMB8bit"):
        found = []
        for kind in (before, torch.bfloat16, torch.float64):
            held = weights(ctx, SIZE)
            torch.set_default_dtype(kind)
            try:
                optimiser = made(name, held)
                for gradient in gradients:
                    held[0].grad = gradient.clone()
                    optimiser.step()
            finally:
                torch.set_default_dtype(before)
            state = optimiser.state[held[0]]
            dtypes = {key: str(each.dtype) for key, each in state.items() if torch.is_tensor(each)}
            found.append((dtypes, held[0].detach().clone()))
        for kind, (dtypes, weight) in zip(("bfloat16", "float64"), found[1:], strict=True):
            title = f"{name}, default {kind}"
            yield equal(f"dtypes of states as under float32, {title}", str(dtypes), str(found[0][0]))
            yield equal(f"weights that differ, {title}", int((weight != found[0][1]).sum()), 0)


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def optimisers_of_steps_with_losses(ctx: Context) -> Iterator[Check]:
    """step(closure) of bitsandbytes' optimisers computes the loss anew and returns it; step() returns None."""
    import torch
    from bitsandbytes import optim

    for name in (each for each in CLASSES if hasattr(optim, each)):
        parameter = torch.nn.Parameter(torch.full((SIZE,), 2.0, device=ctx.place.device))
        optimiser = made(name, [parameter])
        calls: list[bool] = []

        def closure(parameter: Any = parameter, calls: list[bool] = calls) -> Any:
            calls.append(torch.is_grad_enabled())
            parameter.grad = None
            loss = parameter.square().mean()
            loss.backward()
            return loss

        with torch.no_grad():
            loss = optimiser.step(closure)
        yield equal(f"loss, {name}", str(None if loss is None else float(loss)), "4.0")
        yield equal(f"calls with gradients, {name}", str(calls), "[True]")
        yield equal(f"step() returns, {name}", str(optimiser.step()), "None")
