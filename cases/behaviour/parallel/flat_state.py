"""FSDP1's own state dicts: full, sharded and local ones, of models and of optimisers.

https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.state_dict_type
"""

from __future__ import annotations

import contextlib
import warnings
from copy import deepcopy
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.flat_strategies import STRATEGIES
from cases.behaviour.parallel.networks import network
from cases.behaviour.parallel.uneven_shards import moments, plain_moments
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "State of parallel models"
OWN_NAMES = (*jobs.FSDP1, "fsdp1_optimiser_state")
RATE = 0.05
STEPS, LATER = range(2), range(2, 4)
MOMENTS = 1e-4  # relative: squares of gradients that ranks reduce in another order


@contextlib.contextmanager
def kind_of_state(model: Any, kind: str, **chosen: Any) -> Iterator[None]:
    """Let state_dict and load_state_dict use this type, without the warning that the API will go.

    Optimisers would move their state to the CPU by default.
    """
    from torch.distributed import fsdp

    name = kind.capitalize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_model = getattr(fsdp, f"{name}StateDictConfig")(**chosen)
        of_optimiser = getattr(fsdp, f"{name}OptimStateDictConfig")(**{"offload_to_cpu": False, **chosen})
        wanted = fsdp.StateDictType[f"{kind.upper()}_STATE_DICT"]
        with fsdp.FullyShardedDataParallel.state_dict_type(model, wanted, of_model, of_optimiser):
            yield


def wrapped(ctx: Context, strategy: str = "FULL_SHARD", *, own_names: bool = True, **chosen: Any) -> Any:
    from torch.distributed.fsdp import ShardingStrategy

    more = {"sharding_strategy": ShardingStrategy[strategy], "use_orig_params": own_names, **chosen}
    return sharded_networks.fsdp1(network(), ctx, **more)


def changed(model: Any) -> Any:
    """The model with other weights, so that loading has to replace them."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    return model


def whole_weights(model: Any) -> dict[str, Any]:
    """Weights by FSDP's view of whole parameters, not by its state dicts."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        return {tiny.canonical(name): each.detach().clone() for name, each in model.named_parameters()}


def copied(state: dict[str, Any]) -> dict[str, Any]:
    """A state dict as a file would keep it: full tensors would be views of the weights."""
    plain = ("Tensor", "Parameter")
    return {name: each.clone() if type(each).__name__ in plain else each for name, each in state.items()}


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP1)
def fsdp1_full_state(ctx: Context) -> Iterator[Check]:
    """A full state dict has the whole weights under their plain names, on both ranks or rank 0, and loads again."""
    expected = networks.weights(network())
    for strategy, own_names in product(STRATEGIES, (True, False)):
        yield from full_state(ctx, strategy, own_names=own_names)
        if strategy != "NO_SHARD":
            yield from full_state(ctx, strategy, own_names=own_names, rank0_only=True)
        other = changed(wrapped(ctx, strategy, own_names=own_names))
        with kind_of_state(other, "full"):
            other.load_state_dict({name: each.clone() for name, each in expected.items()})
        found = whole_weights(other)
        yield networks.off(f"weights loaded off, {strategy}, use_orig_params={own_names}", found, expected, 0.0)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP1)
def fsdp1_full_state_offloaded(ctx: Context) -> Iterator[Check]:
    """A full state dict with offload_to_cpu keeps its values when the weights change or their memory is freed."""
    for strategy, own_names, alone in product(STRATEGIES[:2], (True, False), (True, False)):
        yield from full_state(ctx, strategy, own_names=own_names, rank0_only=alone, offload_to_cpu=True)


def full_state(ctx: Context, strategy: str, *, own_names: bool, **chosen: bool) -> Iterator[Check]:
    expected = networks.weights(network())
    model = wrapped(ctx, strategy, own_names=own_names)
    with kind_of_state(model, "full", **chosen):
        held = model.state_dict()
        if not chosen.get("offload_to_cpu"):
            held = copied(held)  # the memory of whole weights is freed, or changes with them
    networks.loss(changed(model), 0, ctx).backward()
    kind = ", ".join((strategy, f"use_orig_params={own_names}", *chosen))
    if chosen.get("rank0_only") and ctx.place.rank > 0:
        yield equal(f"names on another rank, {kind}", "+".join(held), "")
    else:
        yield networks.off(f"state off, {kind}", held, expected, 0.0)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP1)
def fsdp1_sharded_state(ctx: Context) -> Iterator[Check]:
    """The shards of both ranks in a sharded state dict make the whole weights, and load into a model with others."""
    expected = networks.weights(network())
    for strategy, own_names in product(STRATEGIES[:2], (True, False)):
        model = wrapped(ctx, strategy, own_names=own_names)
        kind = f"{strategy}, use_orig_params={own_names}"
        with kind_of_state(model, "sharded"):
            held = model.state_dict()
        yield networks.off(f"state off, {kind}", {name: together(each) for name, each in held.items()}, expected, 0.0)
        rows = {name: sum(len(shard.tensor) for shard in each.local_shards()) for name, each in held.items()}
        yield equal(f"rows of the first layer, {kind}", rows["first.weight"], (7, 6)[ctx.place.rank])
        other = changed(wrapped(ctx, strategy, own_names=own_names))
        with kind_of_state(other, "sharded"):
            other.load_state_dict(held)
        yield networks.off(f"weights loaded off, {kind}", whole_weights(other), expected, 0.0)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP1)
def fsdp1_sharded_state_of_no_shard(ctx: Context) -> Iterator[Check]:
    """With NO_SHARD, a state dict that should be sharded has the whole weights, as its warning says, and loads."""
    expected = networks.weights(network())
    for own_names in (True, False):
        model, other = wrapped(ctx, "NO_SHARD", own_names=own_names), wrapped(ctx, "NO_SHARD", own_names=own_names)
        with kind_of_state(model, "sharded"):
            held = copied(model.state_dict())
        kind = f"NO_SHARD, use_orig_params={own_names}"
        yield networks.off(f"state off, {kind}", held, expected, 0.0)
        with kind_of_state(changed(other), "sharded"):
            other.load_state_dict(held)
        yield networks.off(f"weights loaded off, {kind}", whole_weights(other), expected, 0.0)


def together(tensor: Any) -> Any:
    """The whole of a ShardedTensor, from the shards that each rank says to have."""
    import torch
    import torch.distributed as dist

    shards = [(shard.metadata.shard_offsets, shard.tensor.clone()) for shard in tensor.local_shards()]
    of_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, shards)
    whole = torch.full(tuple(tensor.size()), float("nan"))
    for offsets, part in (each for shards in of_ranks for each in shards):
        whole[tuple(slice(begin, begin + size) for begin, size in zip(offsets, part.shape, strict=True))] = part
    return whole


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP1)
def fsdp1_local_state(ctx: Context) -> Iterator[Check]:
    """A local state dict of flat parameters restores the weights of a model that is wrapped alike."""
    expected = networks.weights(network())
    model = wrapped(ctx, own_names=False)
    with kind_of_state(model, "local"):
        held = model.state_dict()
    held = {name: each.clone() if hasattr(each, "clone") else each for name, each in held.items()}
    yield equal("flat parameters", sum("flat_param" in name for name in held), 3)
    other = changed(wrapped(ctx, own_names=False))
    with kind_of_state(other, "local"):
        other.load_state_dict(held)
    yield networks.off("weights loaded off", whole_weights(other), expected, 0.0)


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=("fsdp1", "fsdp1_mixed"))
def fsdp1_buffers_of_state(ctx: Context) -> Iterator[Check]:
    """State dicts hold buffers in their own dtype, whatever buffer_dtype the model computes with, and load them.

    A buffer that is not persistent is left out.
    """
    import torch
    from torch.distributed.fsdp import MixedPrecision

    from cases.api import sharding

    class Shift(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(7, 4)
            self.register_buffer("shift", torch.full((4,), scale / 4))
            self.register_buffer("count", torch.tensor(int(scale)))
            self.register_buffer("passing", torch.ones(2), persistent=False)

        def forward(self, inputs: Any) -> Any:
            return self.layer(inputs) + self.shift

    def made(scale: float) -> Any:
        half = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
        model = sharding.fsdp1(networks.filled(Shift(scale)), ctx, mixed_precision=half, use_orig_params=True)
        model(networks.data(0)[0]).float().sum().backward()  # buffers are cast in the first pass
        return model

    for kind in ("full", "sharded"):
        model, other = made(1.0), made(5.0)
        with kind_of_state(model, kind):
            held = model.state_dict()
        shown = {name: (held[name].dtype, held[name].tolist()) for name in ("shift", "count")}
        expected = {"shift": (torch.float32, [0.25] * 4), "count": (torch.int64, 1)}
        yield equal(f"buffers, {kind}", str(shown), str(expected))
        yield equal(f"names, {kind}", "+".join(sorted(held)), "count+layer.bias+layer.weight+shift")
        with kind_of_state(other, kind):
            other.load_state_dict(held)
        inputs = networks.data(1)[0]
        same = bool((model(inputs) == other(inputs)).all())
        yield equal(f"outputs alike after loading, {kind}", same, bound=True)


def trained(ctx: Context, *, own_names: bool, strategy: str = "FULL_SHARD") -> tuple[Any, Any]:
    model = wrapped(ctx, strategy, own_names=own_names)
    optimiser = adam(model)
    networks.train(model, optimiser, STEPS, ctx)
    return model, optimiser


def adam(model: Any, rate: float = RATE) -> Any:
    import torch

    return torch.optim.AdamW(model.parameters(), lr=rate, eps=1e-3)


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_optimiser_states(ctx: Context) -> Iterator[Check]:
    """FSDP.optim_state_dict has each parameter's moments by name, and optim_state_dict_to_load continues with them.

    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.optim_state_dict
    """
    from torch.distributed.fsdp import FullyShardedDataParallel

    plain = network()
    reference = adam(plain)
    networks.train(plain, reference, STEPS)
    expected = plain_moments(plain, reference)
    networks.train(plain, reference, LATER)
    for kind, own_names, strategy in product(("full", "sharded"), (True, False), STRATEGIES[:2]):
        name = f"{kind}, {strategy}, use_orig_params={own_names}"
        model, optimiser = trained(ctx, own_names=own_names, strategy=strategy)
        with kind_of_state(model, kind):
            weights = copied(model.state_dict())
            held = FullyShardedDataParallel.optim_state_dict(model, optimiser)
        yield networks.off(f"moments off, {name}", moments(of_all_ranks(held)), expected, MOMENTS)
        yield equal(f"counts of steps, {name}", str({float(each["step"]) for each in held["state"].values()}), "{2.0}")
        other = changed(wrapped(ctx, strategy, own_names=own_names))
        later = adam(other, rate=1.0)
        with kind_of_state(other, kind):
            other.load_state_dict(weights)
            later.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(other, later, held))
        networks.train(other, later, LATER, ctx)
        weights = whole_weights(other)
        yield networks.off(f"weights off after going on, {name}", weights, networks.weights(plain), MOMENTS)


def of_all_ranks(held: dict[str, Any]) -> dict[str, Any]:
    """An optimiser's state whose sharded tensors are whole."""
    state = {
        name: {kind: together(each) if hasattr(each, "local_shards") else each for kind, each in of_one.items()}
        for name, of_one in held["state"].items()
    }
    return {**held, "state": state}


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_optimiser_state_of_rank_0(ctx: Context) -> Iterator[Check]:
    """With rank0_only, rank 0 alone has the optimiser's state; loading it with rank0_only shares it with all ranks."""
    yield from by_rank_0(ctx, own_names=False, rank0_only=True)
    yield from by_rank_0(ctx, own_names=True, rank0_only=True)


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_optimiser_state_offloaded(ctx: Context) -> Iterator[Check]:
    """offload_to_cpu, the default of FullOptimStateDictConfig, changes no moment, also of a model on the CPU.

    torch 2.15 gathers each kind of moment into one buffer, of which "offloaded" moments on the CPU stay views.
    """
    yield from by_rank_0(ctx, own_names=False, offload_to_cpu=True)
    yield from by_rank_0(ctx, own_names=True, offload_to_cpu=True)


def by_rank_0(ctx: Context, *, own_names: bool, **chosen: bool) -> Iterator[Check]:
    """Save full state by these settings, load it into another optimiser, and train on with it."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    plain = network()
    reference = adam(plain)
    networks.train(plain, reference, STEPS)
    expected = plain_moments(plain, reference)
    networks.train(plain, reference, LATER)
    model, optimiser = trained(ctx, own_names=own_names)
    with kind_of_state(model, "full", **chosen):
        held = FullyShardedDataParallel.optim_state_dict(model, optimiser)
    if chosen.get("rank0_only") and ctx.place.rank > 0:
        yield equal("parts of the state on another rank", "+".join(held), "")
    else:
        yield networks.off(f"moments off, use_orig_params={own_names}", moments(held), expected, MOMENTS)
    later = adam(model, rate=1.0)
    with kind_of_state(model, "full", **chosen):
        later.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(model, later, held))
    networks.train(model, later, LATER, ctx)
    found = whole_weights(model)
    yield networks.off(f"weights off, use_orig_params={own_names}", found, networks.weights(plain), MOMENTS)


@call(GROUP, phase=Phase.RESUME, ranks=2, requires=OWN_NAMES)
def fsdp1_rekeyed_optimiser_state(ctx: Context) -> Iterator[Check]:
    """FSDP1's state loads into an optimiser of the plain model after rekey_optim_state_dict, and the other way round.

    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.rekey_optim_state_dict
    """
    from torch.distributed.fsdp import FullyShardedDataParallel, OptimStateKeyType

    plain = network()
    reference = adam(plain)
    networks.train(plain, reference, STEPS)
    model, optimiser = trained(ctx, own_names=True)
    with kind_of_state(model, "full"):
        held = FullyShardedDataParallel.optim_state_dict(model, optimiser)
    again = network()
    by_number = FullyShardedDataParallel.rekey_optim_state_dict(held, OptimStateKeyType.PARAM_ID, again)
    other = adam(again, rate=1.0)
    other.load_state_dict(by_number)
    expected = plain_moments(plain, reference)
    yield networks.off("moments off in a plain optimiser", plain_moments(again, other), expected, MOMENTS)
    by_name = FullyShardedDataParallel.rekey_optim_state_dict(
        reference.state_dict(), OptimStateKeyType.PARAM_NAME, plain
    )
    yield networks.off("moments by name off", moments(by_name), expected, 0.0)
    later = adam(model, rate=1.0)
    with kind_of_state(model, "full"):
        given = FullyShardedDataParallel.optim_state_dict_to_load(model, later, deepcopy(by_name))
        later.load_state_dict(given)
    networks.train(model, later, LATER, ctx)
    networks.train(plain, reference, LATER)
    yield networks.off("weights off after going on", whole_weights(model), networks.weights(plain), MOMENTS)
