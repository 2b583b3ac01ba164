"""Training, state dicts and optimiser state of parameters that ranks cannot share evenly.

``fully_shard`` splits the first dimension as ``torch.chunk`` does, so that the last ranks hold less or nothing:
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import network
from cases.behaviour.parallel.replicating import SMALL_BUCKETS, replicated
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context

    Wrap = Callable[[Any], Any]

GROUP = "State of parallel models"
OWN_NAMES = (*jobs.FSDP1, "fsdp1_optimiser_state")  # needs
STEPS, LATER = range(3), range(3, 5)


def double() -> Any:
    """The network in float64: the ratio of Adam's moments would show float32's rounding."""
    return network().double()


def adamw(model: Any) -> Any:
    import torch

    return torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=0.05, weight_decay=0.1)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP2)
def fsdp2_uneven_shards(ctx: Context) -> Iterator[Check]:
    """FSDP2 splits rows as torch.chunk does, trains, and gives and takes back whole weights and moments."""
    import torch

    rows = {}
    for name, tensor in networks.weights(double()).items():
        chunks = torch.chunk(tensor, ctx.place.world_size)
        rows[name] = len(chunks[ctx.place.rank]) if ctx.place.rank < len(chunks) else 0
    held = {n: len(p.to_local()) for n, p in sharded_networks.fsdp2(double(), ctx).named_parameters()}
    yield equal("parameters with another number of rows", sum(held[n] != count for n, count in rows.items()), 0)
    yield from continued(ctx, lambda model: sharded_networks.fsdp2(model, ctx))


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=OWN_NAMES)
def fsdp1_uneven_shards(ctx: Context) -> Iterator[Check]:
    """FSDP1 with use_orig_params trains, and gives and takes back whole weights and moments of uneven shards."""
    yield from continued(ctx, lambda model: sharded_networks.fsdp1(model, ctx, use_orig_params=True))


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def fsdp1_uneven_flat_parameters(ctx: Context) -> Iterator[Check]:
    """FSDP1 with flat parameters trains, and gives and takes back whole weights and moments of uneven shards."""
    yield from continued(ctx, lambda model: sharded_networks.fsdp1(model, ctx, use_orig_params=False))


def continued(ctx: Context, wrap: Wrap, freeze: Any = lambda model: model) -> Iterator[Check]:
    """Train, hand whole state to a fresh wrapped model, and go on, compared with a plain model that trains on."""
    plain = freeze(double())
    reference = adamw(plain)
    model = wrap(freeze(double()))
    optimiser = adamw(model)
    networks.train(model, optimiser, STEPS, ctx)
    networks.train(plain, reference, STEPS)
    state = whole_state(model, optimiser)
    yield networks.off("weights off", plain_names(state[0]), trained(plain))
    yield networks.off("moments off", moments(state[1]), plain_moments(plain, reference))
    fresh = wrap(with_other_values(freeze(double())))
    later = adamw(fresh)
    give(fresh, later, state)
    networks.train(fresh, later, LATER, ctx)
    networks.train(plain, reference, LATER)
    after = whole_state(fresh, later)
    yield networks.off("weights off after loading", plain_names(after[0]), trained(plain))
    yield networks.off("moments off after loading", moments(after[1]), plain_moments(plain, reference))


def with_other_values(model: Any) -> Any:
    """Change the weights that train, so that loading has to replace them."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.25 if parameter.requires_grad else 1.0)
    return model


def options() -> Any:
    from torch.distributed.checkpoint.state_dict import StateDictOptions

    return StateDictOptions(full_state_dict=True, ignore_frozen_params=True)


def whole_state(model: Any, optimiser: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Copies of the whole state dicts of a model and its optimiser, on every rank."""
    from copy import deepcopy

    from torch.distributed.checkpoint.state_dict import get_state_dict

    of_model, of_optimiser = deepcopy(get_state_dict(model, optimiser, options=options()))
    return of_model, of_optimiser


def give(model: Any, optimiser: Any, state: tuple[dict[str, Any], dict[str, Any]]) -> None:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    wanted = StateDictOptions(full_state_dict=True, strict=False)
    set_state_dict(model, optimiser, model_state_dict=state[0], optim_state_dict=state[1], options=wanted)


def trained(model: Any) -> dict[str, Any]:
    return {name: networks.whole(p) for name, p in model.named_parameters() if p.requires_grad}


def plain_names(state: dict[str, Any]) -> dict[str, Any]:
    return {tiny.canonical(name): networks.whole(tensor) for name, tensor in state.items()}


def moments(state: dict[str, Any]) -> dict[str, Any]:
    """Adam's moments in a state dict of ``torch.distributed.checkpoint``, by name."""
    return {
        f"{tiny.canonical(name)} {kind}": networks.whole(tensor)
        for name, each in state["state"].items()
        for kind, tensor in each.items()
        if kind.startswith("exp_avg")
    }


def plain_moments(model: Any, optimiser: Any) -> dict[str, Any]:
    return {
        f"{name} {kind}": tensor.clone()
        for name, parameter in model.named_parameters()
        for kind, tensor in optimiser.state.get(parameter, {}).items()
        if kind.startswith("exp_avg")
    }


def frozen(model: Any) -> Any:
    """The network with its first layer and one bias frozen, as the base below an adapter is."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith("first") and name != "third.bias")
    return model


@call(GROUP, phase=Phase.SAVE, ranks=2)
def state_of_frozen_parameters_ddp(ctx: Context) -> Iterator[Check]:
    """get_state_dict of a DDP model without frozen parameters holds the others and their moments, under plain names.

    https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.StateDictOptions
    """
    yield from continued(ctx, lambda model: replicated(model, **SMALL_BUCKETS), frozen)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=OWN_NAMES)
def state_of_frozen_parameters_fsdp1(ctx: Context) -> Iterator[Check]:
    """get_state_dict of an FSDP1 model without frozen parameters holds the others and their moments."""
    yield from continued(ctx, lambda model: sharded_networks.fsdp1(model, ctx, use_orig_params=True), frozen)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP2)
def state_of_frozen_parameters_fsdp2(ctx: Context) -> Iterator[Check]:
    """get_state_dict of an FSDP2 model without frozen parameters holds the others and their moments."""
    yield from continued(ctx, lambda model: sharded_networks.fsdp2(model, ctx), frozen)
