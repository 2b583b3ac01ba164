"""Strategies of FSDP1, and its view of whole parameters: each must leave the numbers of one process.

https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.sharded_parts import GROUP, LAYERS, step_by_step
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")


def sharded(ctx: Context, strategy: str, **chosen: Any) -> Any:
    from torch.distributed.fsdp import ShardingStrategy

    return sharded_networks.fsdp1(network(), ctx, LAYERS, sharding_strategy=ShardingStrategy[strategy], **chosen)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_strategies(ctx: Context) -> Iterator[Check]:
    """FULL_SHARD, SHARD_GRAD_OP and NO_SHARD train with the gradients of one process."""
    for strategy, own_names in product(STRATEGIES, (True, False)):
        model = sharded(ctx, strategy, use_orig_params=own_names)
        yield step_by_step(ctx, model, sharded_networks.fsdp1_gradients)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_two_forwards(ctx: Context) -> Iterator[Check]:
    """Two forward passes before one backward pass give the sum of both gradients under FSDP1."""
    expected = networks.expected_gradients(network(), networks.losses(range(2)))
    for strategy, own_names in product(STRATEGIES[:2], (True, False)):
        model = sharded(ctx, strategy, use_orig_params=own_names)
        (loss(model, 0, ctx) + loss(model, 1, ctx)).backward()
        yield networks.off("gradients off", sharded_networks.fsdp1_gradients(model), expected)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_forwards_before_backwards(ctx: Context) -> Iterator[Check]:
    """Two forward passes, then a backward pass for each, give the sum of both gradients under FSDP1 with NO_SHARD.

    The other strategies free the weights that the second backward pass needs, and raise.
    """
    expected = networks.expected_gradients(network(), networks.losses(range(2)))
    for own_names in (True, False):
        model = sharded(ctx, "NO_SHARD", use_orig_params=own_names)
        for each in [loss(model, step, ctx) for step in range(2)]:
            each.backward()
        found = sharded_networks.fsdp1_gradients(model)
        yield networks.off(f"gradients off, use_orig_params={own_names}", found, expected)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_recomputed_layers(ctx: Context) -> Iterator[Check]:
    """Layers that FSDP1 shards and that are recomputed, with or without reentry, have the gradients of one process."""
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as recomputing

    expected = networks.expected_gradients(network(), [loss])
    for kind, own_names in product(recomputing.CheckpointImpl, (True, False)):
        model = network()
        for name in LAYERS:
            layer = getattr(model, name)
            setattr(model, name, recomputing.checkpoint_wrapper(layer, checkpoint_impl=kind))
        wrapped = sharded_networks.fsdp1(model, ctx, LAYERS, use_orig_params=own_names)
        inputs, targets = (networks.share(each, ctx) for each in networks.data(0))
        (wrapped(inputs.requires_grad_()) - targets).square().mean().backward()
        found = sharded_networks.fsdp1_gradients(wrapped)
        plain = {name.replace("_checkpoint_wrapped_module.", ""): each for name, each in found.items()}
        yield networks.off(f"gradients off: {kind.name}", plain, expected)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def fsdp1_whole_parameters(ctx: Context) -> Iterator[Check]:
    """summon_full_params shows whole weights and gradients, on one rank or all, and writes back only if asked."""
    yield from summoned(ctx)
    yield from summoned(ctx, with_grads=True)
    yield from summoned(ctx, writeback=False)
    yield from summoned(ctx, writeback=False, rank0_only=True)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def fsdp1_whole_parameters_offloaded(ctx: Context) -> Iterator[Check]:
    """summon_full_params shows whole weights on one rank with offload_to_cpu, and the model trains on after it."""
    yield from summoned(ctx, writeback=False, rank0_only=True, offload_to_cpu=True)


def summoned(ctx: Context, **chosen: bool) -> Iterator[Check]:
    """Look at the whole parameters, double them, and look again."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    before, expected = networks.weights(network()), networks.expected_gradients(network(), [loss])
    model = sharded(ctx, "FULL_SHARD", use_orig_params=True)
    loss(model, 0, ctx).backward()
    kind = ", ".join(sorted(chosen)) or "as it is"
    with FullyShardedDataParallel.summon_full_params(model, **chosen), torch.no_grad():
        if not chosen.get("rank0_only") or ctx.place.rank == 0:  # the other ranks see their shards
            named = dict(plainly_named(model))
            yield networks.off(f"weights off: {kind}", {n: p.clone() for n, p in named.items()}, before)
            if chosen.get("with_grads"):
                found = {n: p.grad.clone() for n, p in named.items() if p.grad is not None}
                yield networks.off("whole gradients off", found, expected)
            for parameter in named.values():
                parameter.mul_(2)
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        after = {name: p.detach().clone() for name, p in plainly_named(model)}
    kept = 2.0 if chosen.get("writeback", True) else 1.0
    yield networks.off(f"weights afterwards off: {kind}", after, {name: kept * each for name, each in before.items()})


def plainly_named(model: Any) -> Iterator[tuple[str, Any]]:
    """Parameters under the names of the network."""
    for name, parameter in model.named_parameters():
        yield name.replace("_fsdp_wrapped_module.", ""), parameter


@call(GROUP, phase=Phase.WRAP)
def fsdp1_of_one_rank(ctx: Context) -> Iterator[Check]:
    """On one rank, FSDP1 shards nothing: parameters keep their shapes, and training is that of the plain network."""
    join(ctx)
    model = sharded(ctx, "FULL_SHARD", use_orig_params=True)
    shapes = {name: str(tuple(each.shape)) for name, each in networks.weights(network()).items()}
    found = {name: str(tuple(each.shape)) for name, each in plainly_named(model)}
    yield equal(
        "parameters of another shape", "+".join(n for n in shapes if found.get(n) != shapes[n]) or "none", "none"
    )
    yield equal("strategy", model.sharding_strategy.name, "NO_SHARD")
    yield step_by_step(ctx, model, sharded_networks.fsdp1_gradients)


def join(ctx: Context) -> None:
    """Start the group of this one rank, which a launcher would have started."""
    from torch import distributed

    if not distributed.is_initialized():
        backend = ctx.place.backend
        store = distributed.FileStore(str(ctx.kept / "group"), 1)
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
