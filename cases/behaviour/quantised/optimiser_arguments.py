"""bitsandbytes' optimisers by their arguments: dtypes and sizes of weights, schedules, and settings by parameter."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.quantised import eight_bit_optimisers as plain
from cases.behaviour.quantised import formats
from cases.behaviour.quantised.eight_bit_optimisers import DECAY, OPTIMISERS, RATE, STEPS
from cases.reference.tolerance import UNIT_ROUNDOFF
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "8-bit optimisers"
STEP = ("adamw_8bit_step",)
SIZES = ((64, 64), (5, 17, 61))  # whole and incomplete blocks of 256
RISE = 3  # the steps of AdEMAMix's schedules
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def library(name: str, weights: list[Any], bits: int, **more: Any) -> Any:
    """The optimiser by its general class, as the Trainer makes it, where that knows the number of bits."""
    from bitsandbytes import optim

    return getattr(optim, name)(weights, optim_bits=bits, **{**OPTIMISERS[name][0], **more})


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def optimisers_of_half_weights(ctx: Context) -> Iterator[Check]:
    """Each optimiser of bitsandbytes steps weights in half precision by its formula, and rounds each step once.

    Their states stay in float32. Small tensors of an 8-bit optimiser have such states too.
    """
    import torch

    for name, (short, kind), bits in product(OPTIMISERS, DTYPES.items(), (32, 8)):
        weight = torch.nn.Parameter(formats.numbers(300).to(getattr(torch, kind)).to(ctx.place.device))
        made = library(name, [weight], bits)
        state: dict[str, Any] = {}
        errors = []
        for step in range(1, STEPS + 1):
            weight.grad = formats.numbers(300, seed=10 + step).to(weight.dtype).to(ctx.place.device)
            before = weight.detach().double().cpu()
            wanted = OPTIMISERS[name][1](before, weight.grad.double().cpu(), state, step)
            made.step()
            off = (weight.detach().double().cpu() - wanted).abs()
            errors.append(float((off / (wanted.abs() + before.abs())).max()))
        title = f"{name} in {bits} bits, {short}"
        # Half a unit in the last place of the larger of both, and float32's rounding of the step.
        yield at_most(f"steps off, in roundings of the weight: {title}", max(errors) / UNIT_ROUNDOFF[short], 1.05)
        kinds = {str(each.dtype) for each in made.state[weight].values() if isinstance(each, torch.Tensor)}
        yield equal(f"dtypes of the states: {title}", str(sorted(kinds - {"torch.uint8"})), "['torch.float32']")


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def optimisers_of_every_size(ctx: Context) -> Iterator[Check]:
    """8-bit optimisers step tensors of any size and shape by their formula, with whole and with incomplete blocks."""
    import torch

    for name, shape in product(OPTIMISERS, SIZES):
        weight = torch.nn.Parameter(formats.numbers(*shape).to(ctx.place.device))
        made = library(name, [weight], 8)
        wanted, state = formats.numbers(*shape).double().flatten(), {}  # type: ignore[var-annotated]
        _, formula, signed = OPTIMISERS[name]
        for step in range(1, STEPS + 1):
            weight.grad = formats.numbers(*shape, seed=10 + step).to(ctx.place.device)
            wanted = formula(wanted, weight.grad.double().cpu().flatten(), state, step)
            state.update({each: plain.quantised(state[each], signed=each in signed) for each in state})
            made.step()
        title = f"{name}, {'x'.join(map(str, shape))}"
        share = plain.share_off(weight.detach().cpu().flatten(), wanted)
        yield at_most(f"share of weights off: {title}", share, plain.FEW)
        blocks = -(-weight.numel() // 256)
        kept = made.state[weight]["absmax1"]
        yield equal(f"blocks: {title}", kept.shape[-1], blocks)


def scheduled(alpha: float, slow: float, step: int, *, rises: tuple[bool, bool]) -> tuple[float, float]:
    """AdEMAMix's alpha and third beta in a step (https://arxiv.org/abs/2409.03137, section 3, and algorithm 1)."""
    part = min(1.0, step / RISE)
    ends = math.log(plain.BETAS[0]), math.log(slow)
    blend = math.exp(ends[0] * ends[1] / ((1 - part) * ends[1] + part * ends[0]))
    return (alpha * part if rises[0] else alpha), (min(blend, slow) if rises[1] else slow)


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def ademamix_schedules(ctx: Context) -> Iterator[Check]:
    """AdEMAMix's t_alpha and t_beta3 raise alpha and the third beta as its paper says, then leave them."""
    import torch

    for rises, bits in product(((True, False), (False, True), (True, True)), (32, 8)):
        weight = torch.nn.Parameter(formats.numbers(4196).to(ctx.place.device))
        chosen = {name: RISE for name, rise in zip(("t_alpha", "t_beta3"), rises, strict=True) if rise}
        made = library("AdEMAMix", [weight], bits, **chosen)
        wanted = formats.numbers(4196).double()
        state: dict[str, Any] = {}
        for step in range(1, STEPS + 1):
            weight.grad = formats.numbers(4196, seed=10 + step).to(ctx.place.device)
            wanted = mixed(wanted, weight.grad.double().cpu(), state, step, rises)
            if bits == 8:  # noqa: PLR2004 - a format
                state.update({each: plain.quantised(state[each], signed=each != "second") for each in state})
            made.step()
        title = f"{', '.join(chosen)}, {bits} bits"
        share = plain.share_off(weight.detach().cpu(), wanted)
        yield at_most(f"share of weights off: {title}", share, plain.FEW if bits == 8 else 0.0)  # noqa: PLR2004 - as above


def mixed(weight: Any, gradient: Any, state: dict[str, Any], step: int, rises: tuple[bool, bool]) -> Any:
    alpha, slow = scheduled(plain.MIX, plain.SLOW, step, rises=rises)
    first, second = plain.BETAS
    fast = plain.blend(state, "first", gradient, first) / (1 - first**step)
    lasting = plain.blend(state, "slow", gradient, slow)
    size = (plain.blend(state, "second", gradient**2, second) / (1 - second**step)).sqrt() + plain.EPS
    return weight * (1 - RATE * DECAY) - RATE * (fast + alpha * lasting) / size


@call(GROUP, phase=Phase.OPTIMIZER, requires=STEP)
def optimiser_overrides(ctx: Context) -> Iterator[Check]:
    """GlobalOptimManager overrides the bits, the rate and the betas of one parameter, or of all of a module.

    https://huggingface.co/docs/bitsandbytes/optimizers
    """
    import torch
    from bitsandbytes.optim import GlobalOptimManager

    manager = GlobalOptimManager.get_instance()
    manager.initialize()
    kept, other = (torch.nn.Parameter(formats.numbers(4196)) for _ in range(2))
    manager.register_parameters([kept, other])
    kept.data, other.data = kept.data.to(ctx.place.device), other.data.to(ctx.place.device)
    manager.override_config(kept, key_value_dict={"optim_bits": 32, "lr": RATE / 2})
    made = library("AdamW", [kept, other], 8)
    for step in range(1, STEPS + 1):
        for each in (kept, other):
            each.grad = formats.numbers(4196, seed=10 + step).to(ctx.place.device)
        made.step()
    kinds = [str(made.state[each]["state1"].dtype) for each in (kept, other)]
    yield equal("dtypes of the states", str(kinds), "['torch.float32', 'torch.uint8']")
    yield equal("weights that both rates move alike", int((kept == other).sum()), 0)


def states(optimiser: Any, weights: list[Any]) -> dict[str, str]:
    """The dtype of each tensor of an optimiser's states."""
    found = {}
    for number, weight in enumerate(weights):
        for key, each in optimiser.state[weight].items():
            if hasattr(each, "dtype"):
                found[f"{key} of {number}"] = str(each.dtype)
    return found


@call(GROUP, phase=Phase.RESUME, requires=STEP)
def optimiser_states_loaded(ctx: Context) -> Iterator[Check]:
    """States that another optimiser loads keep their dtypes and values, whatever the weights' dtype, and go on alike.

    Small tensors of an 8-bit optimiser have float32 states beside 8-bit ones. The rate of the saved one is loaded, and
    a state of more tensors is refused.
    """
    import torch

    kinds = ("float32", *DTYPES.values())
    for name, kind, bits in product(OPTIMISERS, kinds, (32, 8)):
        numbers = [formats.numbers(size).to(getattr(torch, kind)).to(ctx.place.device) for size in (300, 4196)]
        held = [torch.nn.Parameter(each.clone()) for each in numbers]
        made = library(name, held, bits)
        for step in range(3):
            stepped(made, held, step)
        made.param_groups[0]["lr"] = RATE / 2
        path = ctx.kept / f"{name} {kind} {bits}.pt"
        torch.save(made.state_dict(), path)
        saved = torch.load(path, weights_only=False)
        others = [torch.nn.Parameter(each.detach().clone()) for each in held]
        again = library(name, others, bits)
        again.load_state_dict(saved)
        title = f"{name} in {bits} bits, {kind}"
        yield equal(f"dtypes of states loaded: {title}", str(states(again, others)), str(states(made, held)))
        differ = [
            f"{key} of {number}"
            for number, (one, other) in enumerate(zip(held, others, strict=True))
            for key, each in made.state[one].items()
            if not same(each, again.state[other].get(key))
        ]
        yield equal(f"states with other values: {title}", ", ".join(differ), "")
        yield equal(f"rate loaded: {title}", again.param_groups[0]["lr"], RATE / 2)
        before = [each.detach().clone() for each in others]
        for step in range(3, 6):
            stepped(made, held, step)
            stepped(again, others, step)
        wrong = sum(int((one != other).sum()) for one, other in zip(held, others, strict=True))
        yield equal(f"weights that differ after more steps: {title}", wrong, 0)
        moved = [bool((one != other).any()) for one, other in zip(others, before, strict=True)]
        yield equal(f"tensors that the steps move: {title}", str(moved), "[True, True]")
        fewer = library(name, others[:1], bits)
        yield equal(f"refused, fewer tensors: {title}", refusal(fewer.load_state_dict, saved), "ValueError")


def same(one: Any, other: Any) -> bool:
    """Whether two values of a state are equal, tensors in dtype and every bit."""
    import torch

    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    return bool(one == other)


def stepped(optimiser: Any, weights: list[Any], step: int) -> None:
    for weight in weights:
        weight.grad = formats.numbers(weight.numel(), seed=10 + step).to(weight.dtype).to(weight.device)
    optimiser.step()
