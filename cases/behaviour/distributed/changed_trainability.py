"""FSDP2 whose parameters are frozen and trained in turn, and hybrid shards that sum now and reduce later.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.apply import compat
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.sharded_parts import GROUP
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

# What trains in each step, by the beginnings of names: as gradual unfreezing, or switching adapters, has it.
TRAINED = (("",), ("third", "fourth"), ("first",), ("second", "third.bias"), ("",), ("first.weight",))


def train_only(model: Any, beginnings: tuple[str, ...]) -> None:
    for name, parameter in tiny.named(model):
        parameter.requires_grad_(name.startswith(beginnings))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP2)
def fsdp2_switches_trained_parts(ctx: Context) -> Iterator[Check]:
    """Parameters that are frozen or trained after some passes have gradients from the next pass on, or none.

    In units with and without reshard_after_forward, and beside ignored gradients of earlier steps.
    """
    for reshard in (True, False):
        model, plain = network(), network()
        for name in sharded_networks.UNITS:
            compat.fully_shard()(
                model.get_submodule(name), mesh=sharded_networks.mesh(ctx), reshard_after_forward=reshard
            )
        compat.fully_shard()(model, mesh=sharded_networks.mesh(ctx), reshard_after_forward=reshard)
        for step, beginnings in enumerate(TRAINED):
            for each, context in ((model, ctx), (plain, None)):
                each.zero_grad()
                train_only(each, beginnings)
                loss(each, step, context).backward()
            found, expected = networks.gradients(model), networks.gradients(plain)
            title = f"step {step}, reshard={reshard}"
            yield equal(f"parameters with a gradient, {title}", "+".join(sorted(found)), "+".join(sorted(expected)))
            yield networks.off(f"gradients off, {title}", found, expected)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP2)
def fsdp2_trains_switched_parts(ctx: Context) -> Iterator[Check]:
    """An optimiser of all parameters steps those that are trained at the time, as it does in one process."""
    import torch

    model, plain = sharded_networks.fsdp2(network(), ctx), network()
    optimisers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (model, plain)]
    for step, beginnings in enumerate(TRAINED):
        for each, optimiser, context in zip((model, plain), optimisers, (ctx, None), strict=True):
            optimiser.zero_grad()
            train_only(each, beginnings)
            loss(each, step, context).backward()
            optimiser.step()
        yield networks.off(f"weights off, step {step}", networks.weights(model), networks.weights(plain))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP2)
def fsdp2_hybrid_accumulation(ctx: Context) -> Iterator[Check]:
    """With set_requires_all_reduce(False), replicas of shards sum their own gradients; the next pass reduces all sums.

    The mesh replicates over both ranks, each of which shards alone. reduce_dtype may differ from the parameters'.
    """
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy

    names = ("replicate", "shard")
    mesh = init_device_mesh(ctx.place.kind, (ctx.place.world_size, 1), mesh_dim_names=names)
    for reduced in (None, torch.float64):
        policy = MixedPrecisionPolicy(reduce_dtype=reduced)
        model = network()
        for name in sharded_networks.UNITS:
            compat.fully_shard()(model.get_submodule(name), mesh=mesh, mp_policy=policy)
        compat.fully_shard()(model, mesh=mesh, mp_policy=policy)
        for first in (0, 3):
            model.zero_grad()
            for step in (first, first + 1):
                model.set_requires_all_reduce(requires_all_reduce=False)
                loss(model, step, ctx).backward()
            model.set_requires_all_reduce(requires_all_reduce=True)
            loss(model, first + 2, ctx).backward()
            expected = networks.expected_gradients(network(), networks.losses(range(first, first + 3)))
            title = f"from step {first}, reduce_dtype={reduced}"
            yield networks.off(f"gradients off, {title}", networks.gradients(model), expected)
