"""FSDP1's state of optimisers of any kind: names below other wrappers, one state for each parameter, frozen parts.

https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.optim_state_dict
"""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call, sharding
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.flat_state import GROUP, MOMENTS, OWN_NAMES, kind_of_state, of_all_ranks, whole_weights
from cases.behaviour.parallel.networks import network
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context

RATE = 0.05
STEPS, LATER = range(2), range(2, 4)
# Optimisers with one state of a parameter's shape, and with three.
KINDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "momentum": ("SGD", {"momentum": 0.9}),
    "RMSprop": ("RMSprop", {"centered": True, "momentum": 0.5}),
    "amsgrad": ("AdamW", {"amsgrad": True, "eps": 1e-3}),
    "of a script": ("", {}),
}


def made(kind: str, model: Any, rate: float = RATE) -> Any:
    import torch

    name, more = KINDS[kind]
    return (getattr(torch.optim, name) if name else own_class())(model.parameters(), lr=rate, **more)


def own_class() -> Any:
    """An optimiser that keeps an average of gradients, and as Python's values the number of its steps and a word."""
    import torch

    class Counting(torch.optim.Optimizer):  # type: ignore[misc]  # torch has no types here
        def __init__(self, parameters: Any, lr: float) -> None:
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()  # type: ignore[untyped-decorator]  # torch has no types here
        def step(self) -> None:
            for group in self.param_groups:
                for each in (one for one in group["params"] if one.grad is not None):
                    state = self.state[each]
                    state["step"] = state.get("step", 0) + 1
                    state["kind"] = "average"
                    state["average"] = 0.5 * state.get("average", torch.zeros_like(each)) + each.grad
                    each.add_(state["average"], alpha=-group["lr"] / state["step"])

    return Counting


def by_name(model: Any, optimiser: Any) -> dict[str, Any]:
    """The state of a plain model's optimiser, by the parameter's name and the state's."""
    return {
        f"{name} {kind}": value.clone()
        for name, parameter in model.named_parameters()
        for kind, value in optimiser.state.get(parameter, {}).items()
        if hasattr(value, "clone")
    }


def saved(state: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{name} {kind}": value.clone()
        for name, each in state["state"].items()
        for kind, value in each.items()
        if hasattr(value, "clone")
    }


def values(state: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """The states that are no tensors, by the parameter's name and the state's."""
    return sorted(
        (name, kind, value)
        for name, each in state["state"].items()
        for kind, value in each.items()
        if isinstance(value, (int, str))
    )


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_states_of_every_optimiser(ctx: Context) -> Iterator[Check]:
    """optim_state_dict has every state of an optimiser, tensors and others, and training goes on with it.

    Full and sharded, with parameters under their own names and flat ones.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped

    for kind in KINDS:
        plain = network()
        reference = made(kind, plain)
        networks.train(plain, reference, STEPS)
        expected = by_name(plain, reference)
        names = {number: name for number, (name, _) in enumerate(plain.named_parameters())}
        wanted = values({"state": {names[n]: each for n, each in reference.state_dict()["state"].items()}})
        networks.train(plain, reference, LATER)
        for form, own_names in product(("full", "sharded"), (True, False)):
            title = f"{kind}, {form}, use_orig_params={own_names}"
            model = sharded_networks.fsdp1(network(), ctx, use_orig_params=own_names)
            optimiser = made(kind, model)
            networks.train(model, optimiser, STEPS, ctx)
            with kind_of_state(model, form):
                held = Wrapped.optim_state_dict(model, optimiser)
                found = saved(of_all_ranks(held))
                yield networks.off(f"states off, {title}", found, expected, MOMENTS)
                yield equal(f"states that are no tensors, {title}", str(values(held)), str(wanted))
                later = made(kind, model, rate=1.0)
                later.load_state_dict(Wrapped.optim_state_dict_to_load(model, later, held))
            networks.train(model, later, LATER, ctx)
            yield networks.off(
                f"weights off afterwards, {title}", whole_weights(model), networks.weights(plain), MOMENTS
            )


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_optimiser_state_of_recomputed_layers(ctx: Context) -> Iterator[Check]:
    """The optimiser's state of recomputed layers has the plain names, and loads into a model without recomputation."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped

    plain = network()
    reference = made("momentum", plain)
    networks.train(plain, reference, STEPS)
    expected = by_name(plain, reference)
    networks.train(plain, reference, LATER)

    def recomputing() -> Any:
        model = network()
        for name in ("first", "second"):
            setattr(model, name, checkpoint_wrapper(getattr(model, name)))
        return model

    for form, own_names in (("full", True), ("sharded", False)):
        title = f"{form}, use_orig_params={own_names}"
        model = sharded_networks.fsdp1(recomputing(), ctx, use_orig_params=own_names)
        optimiser = made("momentum", model)
        networks.train(model, optimiser, STEPS, ctx)
        other = sharded_networks.fsdp1(network(), ctx, use_orig_params=own_names)
        later = made("momentum", other, rate=1.0)
        with kind_of_state(model, form), kind_of_state(other, form):
            weights = model.state_dict()
            held = Wrapped.optim_state_dict(model, optimiser)
            groups = sorted(name for group in held["param_groups"] for name in group["params"])
            yield equal(f"names in groups, {title}", str(groups), str(sorted(networks.weights(network()))))
            yield networks.off(f"states off, {title}", saved(of_all_ranks(held)), expected, MOMENTS)
            other.load_state_dict(weights)
            later.load_state_dict(Wrapped.optim_state_dict_to_load(other, later, held))
        networks.train(other, later, LATER, ctx)
        yield networks.off(f"weights off afterwards, {title}", whole_weights(other), networks.weights(plain), MOMENTS)


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_optimiser_state_loads_twice(ctx: Context) -> Iterator[Check]:
    """Loading a state leaves the given dictionary as it is, so that a script can go back to it again.

    On all ranks, and with rank0_only on rank 0, where the others hold nothing.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped

    for own_names, alone in ((True, True), (False, False)):
        title = f"use_orig_params={own_names}, rank0_only={alone}"
        model = sharded_networks.fsdp1(network(), ctx, use_orig_params=own_names)
        optimiser = made("momentum", model)
        networks.train(model, optimiser, STEPS, ctx)
        weights = {name: each.clone() for name, each in whole_weights(model).items()}
        with kind_of_state(model, "full", rank0_only=alone):
            held = deepcopy(Wrapped.optim_state_dict(model, optimiser))
        before = saved(held) if held else {}
        results = []
        for _ in range(2):
            with kind_of_state(model, "full"):
                model.load_state_dict({name: each.clone() for name, each in weights.items()})
            later = made("momentum", model, rate=1.0)
            with kind_of_state(model, "full", rank0_only=alone):
                later.load_state_dict(Wrapped.optim_state_dict_to_load(model, later, held))
            networks.train(model, later, LATER, ctx)
            results.append(whole_weights(model))
        if not alone or ctx.place.rank == 0:
            yield networks.off(f"given state changed, {title}", saved(held), before, 0.0)
        yield networks.off(f"weights off the second time, {title}", results[1], results[0], 0.0)


def frozen_later(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if tiny.canonical(name).startswith("first"):
            parameter.requires_grad_(requires_grad=False)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=OWN_NAMES)
def fsdp1_optimiser_state_of_parts_frozen_later(ctx: Context) -> Iterator[Check]:
    """Parameters that are frozen after some steps keep their state, which is saved with the others', as of one process.

    Others train on. With use_orig_params, as gradual unfreezing and its reverse need.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel as Wrapped

    plain = network()
    reference = made("momentum", plain)
    model = sharding.fsdp1(network(), ctx, use_orig_params=True)
    optimiser = made("momentum", model)
    stories: tuple[tuple[Any, Any, Any], ...] = ((plain, reference, None), (model, optimiser, ctx))
    for each, steps, context in stories:
        networks.train(each, steps, STEPS, context)
        steps.zero_grad()
        frozen_later(each)
        networks.train(each, steps, LATER, context)
    yield networks.off("weights off", whole_weights(model), networks.weights(plain), MOMENTS)
    for form in ("full", "sharded"):
        with kind_of_state(model, form):
            held = of_all_ranks(Wrapped.optim_state_dict(model, optimiser))
        yield networks.off(f"states off, {form}", saved(held), by_name(plain, reference), MOMENTS)
