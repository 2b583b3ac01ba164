"""Settings of FSDP1 that change communication: each must leave the gradients of one process.

https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharding
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.replicating import branches, of_branches
from cases.behaviour.parallel.sharded_parts import GROUP, LAYERS, REDUCTIONS, calls_of, step_by_step, with_local
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_prefetch(ctx: Context) -> Iterator[Check]:
    """forward_prefetch, backward_prefetch and limit_all_gathers of FSDP1 change no gradient."""
    from torch.distributed.fsdp import BackwardPrefetch

    for backward in (None, BackwardPrefetch.BACKWARD_PRE, BackwardPrefetch.BACKWARD_POST):
        for forward in (True, False):
            chosen = {"backward_prefetch": backward, "forward_prefetch": forward, "limit_all_gathers": not forward}
            model = sharded_networks.fsdp1(network(), ctx, LAYERS, **chosen)
            yield step_by_step(ctx, model, sharded_networks.fsdp1_gradients)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_accumulation_without_sync(ctx: Context) -> Iterator[Check]:
    """no_sync of FSDP1 keeps gradients local; the next synchronised pass averages the sums."""
    for own_names in (True, False):
        model = sharded_networks.fsdp1(network(), ctx, LAYERS, use_orig_params=own_names)
        for first in (0, 3):
            model.zero_grad()
            with model.no_sync(), calls_of(REDUCTIONS) as seen:
                for step in (first, first + 1):
                    loss(model, step, ctx).backward()
            yield equal("reductions before the last pass", len(seen), 0)
            with calls_of(REDUCTIONS) as seen:
                loss(model, first + 2, ctx).backward()
            yield equal("reductions of the last pass", len(seen), 1 + len(LAYERS))
            terms = networks.losses(range(first, first + 3))
            expected = networks.expected_gradients(network(), terms)
            yield networks.off("gradients off", sharded_networks.fsdp1_gradients(model), expected)


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=jobs.FSDP1)
def fsdp1_ignored_modules(ctx: Context) -> Iterator[Check]:
    """ignored_modules of FSDP1 leaves parameters whole, and their gradients those of the rank."""
    model = network()
    ignored = {"second.weight", "second.bias"}
    sharded = sharding.fsdp1(model, ctx, ignored_modules=[model.second])
    loss(sharded, 0, ctx).backward()
    whole = {name: p.grad.clone() for name, p in model.named_parameters() if name in ignored}
    yield equal("parameters left whole", "+".join(sorted(whole)), "+".join(sorted(ignored)))
    found = {**sharded_networks.fsdp1_gradients(sharded), **whole}
    yield networks.off("gradients off", found, with_local(ctx, ignored))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_parameters_of_one_rank(ctx: Context) -> Iterator[Check]:
    """Parameters that one rank uses get its gradient over the number of ranks; parameters of no rank get zeros."""
    for own_names in (True, False):
        model = sharded_networks.fsdp1(branches(ctx.place.rank), ctx, ("trunk",), use_orig_params=own_names)
        loss(model, 0, ctx).backward()
        found = sharded_networks.fsdp1_gradients(model)
        unused = {name: found.pop(name) for name in [*found] if name.startswith("branches.2")}
        yield networks.off("gradients off", found, of_branches(ctx, 0))
        yield equal("entries of unused gradients", int(sum(int(g.count_nonzero()) for g in unused.values())), 0)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP1)
def fsdp1_shared_parameter(ctx: Context) -> Iterator[Check]:
    """A parameter that a module of FSDP1 uses twice gets the mean of the sums of both uses."""
    from cases.behaviour.parallel.replicating import twice

    expected = networks.expected_gradients(twice(), [loss])
    model = sharding.fsdp1(twice(), ctx, use_orig_params=True)
    loss(model, 0, ctx).backward()
    found: dict[str, Any] = sharded_networks.fsdp1_gradients(model)
    yield networks.off("gradients off", found, expected)
