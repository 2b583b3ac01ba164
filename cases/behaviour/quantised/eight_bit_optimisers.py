"""bitsandbytes' optimisers: each update by its formula, with states in 32 bits and in 8."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.reference.quantisation import ABSMAX_BLOCK, dynamic_levels, nearest
from cases.reference.tolerance import relative
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context

    State = dict[str, Any]
    Formula = Callable[[Any, Any, State, int], Any]

GROUP = "8-bit optimisers"
STEPS, RATE, DECAY, EPS = 4, 0.05, 0.1, 1e-6
BETAS = (0.8, 0.9)
SLOW, MIX = 0.99, 3.0  # the third beta and alpha of AdEMAMix
SIZE = 4096  # numbers in a tensor; bitsandbytes keeps the state of smaller ones in 32 bits
FLOAT32 = 1e-5  # of the distance that the weights moved
FEW = 0.05  # the share of weights that may be off: a state between two levels may be rounded to the other one


def adamw(weight: Any, gradient: Any, state: State, step: int) -> Any:
    """https://arxiv.org/abs/1711.05101, algorithm 2."""
    first = blend(state, "first", gradient, BETAS[0]) / (1 - BETAS[0] ** step)
    second = blend(state, "second", gradient**2, BETAS[1]) / (1 - BETAS[1] ** step)
    return weight * (1 - RATE * DECAY) - RATE * first / (second.sqrt() + EPS)


def ademamix(weight: Any, gradient: Any, state: State, step: int) -> Any:
    """https://arxiv.org/abs/2409.03137, algorithm 1, without schedules."""
    fast = blend(state, "first", gradient, BETAS[0]) / (1 - BETAS[0] ** step)
    slow = blend(state, "slow", gradient, SLOW)
    second = blend(state, "second", gradient**2, BETAS[1]) / (1 - BETAS[1] ** step)
    return weight * (1 - RATE * DECAY) - RATE * (fast + MIX * slow) / (second.sqrt() + EPS)


def lion(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    """https://arxiv.org/abs/2302.06675, algorithm 2."""
    direction = (BETAS[0] * state.get("first", 0.0) + (1 - BETAS[0]) * gradient).sign()
    blend(state, "first", gradient, BETAS[1])
    return weight * (1 - RATE * DECAY) - RATE * direction


def momentum(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    """Gradient descent with momentum as torch documents it, without dampening."""
    decayed = gradient + DECAY * weight
    state["first"] = BETAS[0] * state["first"] + decayed if state else decayed
    return weight - RATE * state["first"]


def rmsprop(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    """RMSprop as torch documents it."""
    decayed = gradient + DECAY * weight
    return weight - RATE * decayed / (blend(state, "first", decayed**2, BETAS[0]).sqrt() + EPS)


def adagrad(weight: Any, gradient: Any, state: State, _step: int) -> Any:
    """https://jmlr.org/papers/v12/duchi11a.html, with the decay in the gradient."""
    decayed = gradient + DECAY * weight
    state["first"] = state.get("first", 0.0) + decayed**2
    return weight - RATE * decayed / (state["first"].sqrt() + EPS)


def blend(state: State, name: str, value: Any, beta: float) -> Any:
    state[name] = beta * state.get(name, 0.0) + (1 - beta) * value
    return state[name]


# The arguments of each optimiser; its formula; the states whose 8-bit format has a sign.
ADAM = {"lr": RATE, "betas": BETAS, "eps": EPS, "weight_decay": DECAY}
OPTIMISERS: Mapping[str, tuple[Mapping[str, Any], Formula, frozenset[str]]] = {
    "AdamW": (ADAM, adamw, frozenset({"first"})),
    "AdEMAMix": ({**ADAM, "betas": (*BETAS, SLOW), "alpha": MIX}, ademamix, frozenset({"first", "slow"})),
    "Lion": ({"lr": RATE, "betas": BETAS, "weight_decay": DECAY}, lion, frozenset({"first"})),
    "SGD": ({"lr": RATE, "momentum": BETAS[0], "weight_decay": DECAY}, momentum, frozenset({"first"})),
    "RMSprop": ({"lr": RATE, "alpha": BETAS[0], "eps": EPS, "weight_decay": DECAY}, rmsprop, frozenset({"first"})),
    "Adagrad": ({"lr": RATE, "eps": EPS, "weight_decay": DECAY}, adagrad, frozenset({"first"})),
}


def gradients() -> Iterator[Any]:
    yield from (formats.numbers(SIZE + 100, seed=10 + step) for step in range(STEPS))


def by_formula(name: str, *, bits: int) -> Any:
    """The weights after all steps, float64; in 8 bits each state is quantised after each step."""
    _, formula, signed = OPTIMISERS[name]
    weight = formats.numbers(SIZE + 100).double()
    state: State = {}
    for step, gradient in enumerate(gradients(), start=1):
        weight = formula(weight, gradient.double(), state, step)
        if bits == 8:  # noqa: PLR2004 - a format
            state.update({each: quantised(state[each], signed=each in signed) for each in state})
    return weight


def quantised(state: Any, *, signed: bool) -> Any:
    """A state through 8 bits: blocks of 256, dynamic tree quantisation (https://arxiv.org/abs/2110.02861, 2.2)."""
    import torch

    blocks = torch.nn.functional.pad(state, (0, -len(state) % ABSMAX_BLOCK)).reshape(-1, ABSMAX_BLOCK)
    largest = blocks.abs().amax(dim=1, keepdim=True).clamp_min(1e-38)
    levels = (dynamic_levels() if signed else unsigned_levels()).double()
    return (nearest(blocks / largest, levels) * largest).flatten()[: len(state)]


def unsigned_levels(decades: int = 7) -> Any:
    """The levels of a format without a sign: 2, 4, 8, ... 128 in decades up to 1, each a mean of two bounds."""
    import torch

    found = [torch.tensor([0.0, 1.0])]
    for decade in range(decades):
        bounds = torch.linspace(0.1, 1, 2 ** (decade + 1) + 1)
        found.append(10.0 ** (decade - decades + 1) * (bounds[:-1] + bounds[1:]) / 2)
    return torch.cat(found).sort().values


def by_library(ctx: Context, name: str, *, bits: int, **more: Any) -> tuple[Any, Any]:
    """The weights after all steps of bitsandbytes' optimiser, and the optimiser."""
    import torch
    from bitsandbytes import optim

    arguments, _, _ = OPTIMISERS[name]
    weight = torch.nn.Parameter(formats.numbers(SIZE + 100).to(ctx.place.device))
    made = getattr(optim, f"{name}{bits}bit")([weight], **arguments, **more)
    for gradient in gradients():
        weight.grad = gradient.to(ctx.place.device)
        made.step()
    return weight.detach().cpu(), made


def share_off(found: Any, wanted: Any) -> float:
    """The share of weights that are further off than float32 rounds a step."""
    return float(((found - wanted).abs() > FLOAT32 * RATE * STEPS).float().mean())


def off(found: Any, wanted: Any) -> float:
    """The distance to the expected weights, over the distance that these moved."""
    start = formats.numbers(SIZE + 100).double()
    return relative(found - start, wanted - start)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("adamw_8bit_step",))
def optimisers_in_32_bits(ctx: Context) -> Iterator[Check]:
    """Each optimiser of bitsandbytes with states in 32 bits follows its published formula."""
    for name in sorted(OPTIMISERS.keys() - {"AdEMAMix"}):
        yield from in_32_bits(ctx, name)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("adamw_8bit_step",))
def ademamix_in_32_bits(ctx: Context) -> Iterator[Check]:
    """AdEMAMix32bit keeps two averages of the gradient, as its paper has them."""
    yield from in_32_bits(ctx, "AdEMAMix")


def in_32_bits(ctx: Context, name: str) -> Iterator[Check]:
    found, _ = by_library(ctx, name, bits=32)
    yield at_most(f"weights off: {name}", off(found, by_formula(name, bits=32)), FLOAT32)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("adamw_8bit_step",))
def optimisers_in_8_bits(ctx: Context) -> Iterator[Check]:
    """Each optimiser of bitsandbytes with states in 8 bits follows its formula with states that are rounded."""
    for name in OPTIMISERS:
        found, made = by_library(ctx, name, bits=8)
        state = next(iter(made.state.values()))
        yield equal(f"dtype of the state: {name}", str(state["state1"].dtype), "torch.uint8")
        yield at_most(f"share of weights off: {name}", share_off(found, by_formula(name, bits=8)), FEW)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("adamw_8bit_step",))
def optimisers_of_small_tensors(ctx: Context) -> Iterator[Check]:
    """An 8-bit optimiser keeps the states of tensors with fewer than min_8bit_size numbers in 32 bits."""
    found, made = by_library(ctx, "AdamW", bits=8, min_8bit_size=SIZE + 101)
    yield equal("dtype of the state", str(next(iter(made.state.values()))["state1"].dtype), "torch.float32")
    yield at_most("weights off", off(found, by_formula("AdamW", bits=32)), FLOAT32)


@call(GROUP, phase=Phase.RESUME, requires=("adamw_8bit_step",))
def optimisers_in_8_bits_resume(ctx: Context) -> Iterator[Check]:
    """An 8-bit optimiser that loads its state dict takes the step that it would have taken."""
    import torch
    from bitsandbytes import optim

    for name in ("AdamW", "Lion"):
        arguments, _, _ = OPTIMISERS[name]
        weight, made = by_library(ctx, name, bits=8)
        one, other = (torch.nn.Parameter(weight.clone().to(ctx.place.device)) for _ in range(2))
        made.param_groups[0]["params"] = [one]
        made.state = type(made.state)(dict, {one: next(iter(made.state.values()))})
        again = getattr(optim, f"{name}8bit")([other], **arguments)
        again.load_state_dict(made.state_dict())
        for each, optimiser in ((one, made), (other, again)):
            each.grad = formats.numbers(SIZE + 100, seed=99).to(ctx.place.device)
            optimiser.step()
        yield at_most(f"weights off: {name}", relative(other.detach(), one.detach()), 0.0)


@call(GROUP, phase=Phase.RESUME, requires=("adamw_8bit_step",))
def optimisers_of_half_weights_resume(ctx: Context) -> Iterator[Check]:
    """An optimiser of bfloat16 weights loads its states in their own dtypes, and takes the step it would have taken.

    States in 32 bits are float32 whatever the dtype of the weights. States of older releases are not nested.
    """
    import torch
    from bitsandbytes import optim

    for name, bits in itertools.product(("AdamW", "Lion"), (32, 8)):
        kind, title = getattr(optim, f"{name}{bits}bit"), f"{name}, {bits} bits"
        arguments, _, _ = OPTIMISERS[name]
        one = torch.nn.Parameter(formats.numbers(SIZE + 100).bfloat16().to(ctx.place.device))
        made = kind([one], **arguments)
        stepped(made, one, seed=10)
        others = {}
        for form, state in {title: copy.deepcopy(made.state_dict()), f"{title}, not nested": not_nested(made)}.items():
            other = torch.nn.Parameter(one.detach().clone())
            again = kind([other], **arguments)
            again.load_state_dict(state)
            yield equal(f"dtypes of the loaded states: {form}", str(dtypes(again)), str(dtypes(made)))
            others[form] = (other, again)
        before = one.detach().clone()
        stepped(made, one, seed=99)
        yield at_least(f"what the step changes: {title}", relative(one.detach(), before), RATE / 10)
        for form, (other, again) in others.items():
            stepped(again, other, seed=99)
            yield at_most(f"weights off: {form}", relative(other.detach(), one.detach()), 0.0)


def not_nested(optimiser: Any) -> Any:
    """A copy of the state dict with all parts of a weight side by side, as releases save it that wrap none for FSDP."""
    state = copy.deepcopy(optimiser.state_dict())
    for each in state["state"].values():
        for name in [name for name, part in each.items() if isinstance(part, dict)]:
            each.update(each.pop(name))
    return state


def stepped(optimiser: Any, weight: Any, seed: int) -> None:
    """Take a step by a drawn gradient."""
    weight.grad = formats.numbers(SIZE + 100, seed=seed).to(weight)
    optimiser.step()


def dtypes(optimiser: Any) -> dict[str, Any]:
    """The dtypes of the states of the only weight, by name."""
    (state,) = optimiser.state.values()
    return {name: each.dtype for name, each in sorted(state.items()) if hasattr(each, "dtype")}
