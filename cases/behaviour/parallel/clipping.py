"""Clipping by the norm of all gradients of all ranks.

Clipped gradients are g * min(1, max_norm / (norm + 1e-6)), with the norm of all gradients as one vector:
https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs, sharding
from cases.api.loading import launched
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.replicating import SMALL_BUCKETS, replicated
from cases.space.verdict import Check, Phase, at_most

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases.apply.context import Context

    Clip = Callable[..., Any]

GROUP = "Clipping gradients over ranks"
FINITE = (1.0, 2.0, 3.0)
NORMS = (*FINITE, math.inf)
SHARES = (0.25, 3.0)  # bounds, over the norm: one that clips, and one that does not


def clipped(
    ctx: Context,
    model: Any,
    clip: Clip,
    *,
    read: Any = networks.gradients,
    norms: Sequence[float] = NORMS,
    widths: Sequence[int] = networks.WIDTHS,
) -> Iterator[Check]:
    """Clip fresh gradients by some norms, with a bound below and one above each norm."""
    exact = networks.expected_gradients(network(widths), [loss])
    for norm in norms:
        total = of_all(exact, norm)
        for share in SHARES:
            model.zero_grad()
            loss(model, 0, ctx).backward()
            found = float(networks.whole(clip(share * total, norm)))
            factor = min(1.0, share * total / (total + 1e-6))
            yield at_most(f"norm {norm} off", abs(found / total - 1), networks.SAME)
            expected = {name: factor * gradient for name, gradient in exact.items()}
            yield networks.off(f"gradients clipped by norm {norm} off", read(model), expected)


def of_all(gradients: dict[str, Any], norm: float) -> float:
    """The norm of all entries as one vector, by its definition."""
    import torch

    entries = torch.cat([each.double().flatten() for each in gradients.values()]).abs()
    return float(entries.max() if math.isinf(norm) else entries.pow(norm).sum().pow(1 / norm))


def by_torch(model: Any, *, foreach: bool) -> Clip:
    import torch

    return lambda bound, norm: torch.nn.utils.clip_grad_norm_(model.parameters(), bound, norm, foreach=foreach)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def clip_ddp_gradients(ctx: Context) -> Iterator[Check]:
    """clip_grad_norm_ under DDP clips by the norm of the averaged gradients, with foreach and without."""
    for foreach in (True, False):
        for view in (True, False):
            model = replicated(network(), gradient_as_bucket_view=view, **SMALL_BUCKETS)
            yield from clipped(ctx, model, by_torch(model, foreach=foreach))


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP2)
def clip_fsdp2_gradients(ctx: Context) -> Iterator[Check]:
    """clip_grad_norm_ clips gradients of FSDP2, sharded unevenly, by the norm over all ranks."""
    for foreach in (True, False):
        model = sharded_networks.fsdp2(network(), ctx)
        yield from clipped(ctx, model, by_torch(model, foreach=foreach), norms=FINITE)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP2)
def clip_fsdp2_gradients_by_largest(ctx: Context) -> Iterator[Check]:
    """clip_grad_norm_ clips gradients of FSDP2 by their largest entry, if each rank has a row of every parameter."""
    widths = (7, 13, 5, 3, 3)
    for foreach in (True, False):
        model = sharded_networks.fsdp2(network(widths), ctx)
        yield from clipped(ctx, model, by_torch(model, foreach=foreach), norms=(math.inf,), widths=widths)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP2)
def clip_fsdp2_empty_shards_by_largest(ctx: Context) -> Iterator[Check]:
    """clip_grad_norm_ clips by the largest entry if a rank holds nothing of a parameter with a single row."""
    model = sharded_networks.fsdp2(network(), ctx)
    yield from clipped(ctx, model, by_torch(model, foreach=True), norms=(math.inf,))


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def clip_fsdp1_gradients(ctx: Context) -> Iterator[Check]:
    """FSDP1's clip_grad_norm_ clips by the norm over all ranks, with use_orig_params and without.

    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_
    """
    for own_names in (True, False):
        model = sharded_networks.fsdp1(network(), ctx, use_orig_params=own_names)
        yield from clipped(ctx, model, model.clip_grad_norm_, read=sharded_networks.fsdp1_gradients)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2, requires=jobs.FSDP1)
def clip_fsdp1_gradients_partly_sharded(ctx: Context) -> Iterator[Check]:
    """FSDP1's clip_grad_norm_ counts a unit with NO_SHARD once, not once for each rank."""
    from torch.distributed.fsdp import ShardingStrategy

    model = network()
    for name in ("second", "third"):
        whole = sharding.fsdp1(getattr(model, name), ctx, sharding_strategy=ShardingStrategy.NO_SHARD)
        setattr(model, name, whole)
    model = sharded_networks.fsdp1(model, ctx, units=("first",))
    yield from clipped(ctx, model, model.clip_grad_norm_, read=sharded_networks.fsdp1_gradients)


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def clip_gradients_by_accelerate(ctx: Context) -> Iterator[Check]:
    """accelerator.clip_grad_norm_ clips by the norm of the averaged gradients, and returns it.

    https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.clip_grad_norm_
    """
    made = accelerator(ctx)
    model = made.prepare(network())
    yield from clipped(ctx, model, lambda bound, norm: made.clip_grad_norm_(model.parameters(), bound, norm))


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def clip_gradient_values_by_accelerate(ctx: Context) -> Iterator[Check]:
    """accelerator.clip_grad_value_ limits each entry of the averaged gradients."""
    made = accelerator(ctx)
    model = made.prepare(network())
    exact = networks.expected_gradients(network(), [loss])
    bound = of_all(exact, math.inf) / 4
    loss(model, 0, ctx).backward()
    made.clip_grad_value_(model.parameters(), bound)
    expected = {name: gradient.clamp(-bound, bound) for name, gradient in exact.items()}
    yield networks.off("gradients off", networks.gradients(model), expected)


def accelerator(ctx: Context, **arguments: Any) -> Any:
    """An Accelerator as a launcher starts it; on a CPU, its ranks form a group of CPUs."""
    from accelerate import Accelerator

    launched(ctx)
    return Accelerator(cpu=ctx.place.kind == "cpu", **arguments)
