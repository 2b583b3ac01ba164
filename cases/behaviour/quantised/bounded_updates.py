"""bitsandbytes' LAMB and LARS: the norm of an update is at most max_unorm times that of its weight.

https://huggingface.co/docs/bitsandbytes/reference/optim/lamb and lars
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.quantised import eight_bit_optimisers as plain
from cases.behaviour.quantised import formats
from cases.behaviour.quantised.eight_bit_optimisers import BETAS, DECAY, EPS, RATE, STEPS
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

    State = dict[str, Any]

GROUP = "8-bit optimisers"
STEP = ("adamw_8bit_step",)
SIZE = 4196
BOUNDS = (0.02, 1.0, 100.0)  # tight, as LAMB has it by default, and none
ROUNDING = 1.02  # of states in 8 bits
NEAR = 1e-4  # of the distance that the weights moved, of steps that are small beside them


def bounded(update: Any, weight: Any, most: float) -> Any:
    """The update, or as much of it as the bound allows."""
    return update * min(1.0, float(most * weight.norm() / update.norm()))


def lamb(weight: Any, gradient: Any, state: State, step: int, most: float, decay: float) -> Any:
    """Adam's direction, bounded (https://arxiv.org/abs/1904.00962, algorithm 2), and a decay apart from it."""
    first = plain.blend(state, "first", gradient, BETAS[0]) / (1 - BETAS[0] ** step)
    second = plain.blend(state, "second", gradient**2, BETAS[1]) / (1 - BETAS[1] ** step)
    return weight * (1 - RATE * decay) - RATE * bounded(first / (second.sqrt() + EPS), weight, most)


def lars(weight: Any, gradient: Any, state: State, _step: int, most: float, decay: float) -> Any:
    """A momentum with the decay in it, bounded (https://arxiv.org/abs/1708.03888)."""
    decayed = gradient + decay * weight
    state["first"] = BETAS[0] * state["first"] + decayed if state else decayed
    return weight - RATE * bounded(state["first"], weight, most)


FORMULAS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "LAMB": (lamb, {"lr": RATE, "betas": BETAS, "eps": EPS}),
    "LARS": (lars, {"lr": RATE, "momentum": BETAS[0]}),
}


def gradient_of(step: int) -> Any:
    return formats.numbers(SIZE, seed=10 + step)


def in_32_bits(ctx: Context, name: str) -> Iterator[Check]:
    """Step a weight by the library and by the formula."""
    import torch
    from bitsandbytes import optim

    formula, settings = FORMULAS[name]
    for most, decay in product(BOUNDS, (0.0, DECAY)):
        start = formats.numbers(SIZE)
        weight = torch.nn.Parameter(start.clone().to(ctx.place.device))
        made = getattr(optim, f"{name}32bit")([weight], **settings, weight_decay=decay, max_unorm=most)
        wanted, state = start.double(), {}  # type: ignore[var-annotated]
        for step in range(1, STEPS + 1):
            weight.grad = gradient_of(step).to(ctx.place.device)
            made.step()
            wanted = formula(wanted, gradient_of(step).double(), state, step, most, decay)
            moved = relative(weight.detach().double().cpu() - start, wanted - start)
            yield at_most(f"weights off, max_unorm={most}, decay={decay}, step {step}", moved, NEAR)


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def lamb_in_32_bits(ctx: Context) -> Iterator[Check]:
    """LAMB takes Adam's direction, of unbiased moments, up to max_unorm times the norm of the weight."""
    yield from in_32_bits(ctx, "LAMB")


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def lars_in_32_bits(ctx: Context) -> Iterator[Check]:
    """LARS takes a momentum up to max_unorm times the norm of the weight."""
    yield from in_32_bits(ctx, "LARS")


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def lars_in_8_bits(ctx: Context) -> Iterator[Check]:
    """LARS with states in 8 bits bounds its updates, too; LAMB8bit is documented not to."""
    import torch
    from bitsandbytes import optim

    weight = torch.nn.Parameter(formats.numbers(SIZE).mul(0.01).to(ctx.place.device))
    made = optim.LARS8bit([weight], **FORMULAS["LARS"][1], max_unorm=BOUNDS[0])
    for step in range(1, STEPS + 1):
        before = weight.detach().clone()
        weight.grad = gradient_of(step).to(ctx.place.device)
        made.step()
        share = float((weight.detach() - before).norm() / before.norm()) / RATE
        yield at_most(f"norm of an update over the bound, step {step}", share / BOUNDS[0], ROUNDING)
        yield equal(f"weights moved, step {step}", share > 0, bound=True)


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def momenta_by_arguments(ctx: Context) -> Iterator[Check]:
    """Nesterov's momentum and dampening change the steps of SGD and LARS or are refused, as is no momentum at all.

    https://huggingface.co/docs/bitsandbytes/reference/optim/sgd and lars
    """
    import torch
    from bitsandbytes import optim

    def stepped(name: str, **more: Any) -> Any:
        weight = torch.nn.Parameter(formats.numbers(SIZE).to(ctx.place.device))
        made = getattr(optim, name)([weight], **{**FORMULAS["LARS"][1], **more})
        for step in (1, 2):
            weight.grad = gradient_of(step).to(ctx.place.device)
            made.step()
        return weight.detach()

    for name in ("SGD32bit", "LARS32bit"):
        usual = stepped(name)
        for title, value in (("nesterov", True), ("dampening", 0.5)):
            try:
                ignored = torch.equal(stepped(name, **{title: value}), usual)
            except (ValueError, NotImplementedError):
                ignored = False
            yield equal(f"{title} of {name} has no effect", ignored, bound=False)
        yield equal(f"refused: {name} without momentum", refusal(stepped, name, momentum=0), "NotImplementedError")
