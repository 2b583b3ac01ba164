"""DDP's reducer: many buckets, accumulation, unused and shared parameters, and compressed gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.networks import loss, network
from cases.checks import shards
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "DDP's documented behaviour"
STEPS = range(5)  # DDP rebuilds buckets after the first, with a static graph after the second
SMALL_BUCKETS = {"bucket_cap_mb": 1e-5}  # ten bytes: each parameter gets its own


def replicated(model: Any, **arguments: Any) -> Any:
    """The model under DDP; the size of the first bucket is not ``bucket_cap_mb`` in all versions."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist._DEFAULT_FIRST_BUCKET_BYTES = 10  # noqa: SLF001 - DDP names it as the way
    return DistributedDataParallel(model, **arguments)


def momentum(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def in_one_process(steps: range = STEPS) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The gradients of each step over the rows of all ranks, and the weights at the end."""
    model = network()
    return networks.train(model, momentum(model), steps), networks.weights(model)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_many_buckets(ctx: Context) -> Iterator[Check]:
    """DDP averages the gradient of every parameter when each parameter has a bucket of its own.

    https://docs.pytorch.org/docs/stable/notes/ddp.html
    """
    yield from many_buckets(ctx)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_many_buckets_as_views(ctx: Context) -> Iterator[Check]:
    """With gradient_as_bucket_view and many buckets, DDP averages every gradient in each step."""
    yield from many_buckets(ctx, gradient_as_bucket_view=True)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_many_buckets_static_graph(ctx: Context) -> Iterator[Check]:
    """With static_graph and many buckets, DDP averages every gradient in each step."""
    yield from many_buckets(ctx, static_graph=True)


def many_buckets(ctx: Context, **arguments: Any) -> Iterator[Check]:
    model = replicated(network(), **SMALL_BUCKETS, **arguments)
    found = networks.train(model, momentum(model), STEPS, ctx)
    expected, after = in_one_process()
    yield at_least("buckets", buckets(model), 4)
    yield networks.worst_off("gradients off", found, expected)
    yield networks.off("weights off", networks.weights(model), after)


def buckets(model: Any) -> int:
    """The number of buckets after DDP rebuilt them; with a static graph or unused parameters, of the first ones."""
    known = shards.reducer(model)
    return len((known.get("rebuilt_bucket_sizes") or known["bucket_sizes"]).split(","))


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_no_sync_many_buckets(ctx: Context) -> Iterator[Check]:
    """no_sync keeps gradients local and adds them up; the next backward pass averages the sums.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync
    """
    yield from accumulated(ctx)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_no_sync_as_views(ctx: Context) -> Iterator[Check]:
    """no_sync adds up local gradients that are views of buckets."""
    yield from accumulated(ctx, gradient_as_bucket_view=True)


def accumulated(ctx: Context, **arguments: Any) -> Iterator[Check]:
    """Two accumulations, as DDP rebuilds its buckets after the first."""
    model = replicated(network(), **SMALL_BUCKETS, **arguments)
    for first in (0, 3):
        model.zero_grad()
        with model.no_sync():
            loss(model, first, ctx).backward()
            loss(model, first + 1, ctx).backward()
        mine = networks.expected_gradients(network(), networks.losses((first, first + 1), ctx))
        yield networks.off("local gradients off", networks.gradients(model), mine)
        loss(model, first + 2, ctx).backward()
        all_rows = networks.losses(range(first, first + 3))
        yield networks.off("gradients off", networks.gradients(model), networks.expected_gradients(network(), all_rows))


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_no_sync_within_no_sync(ctx: Context) -> Iterator[Check]:
    """The end of a no_sync inside another one leaves gradients local; they are averaged after the outer one."""
    model = replicated(network(), **SMALL_BUCKETS)
    with model.no_sync():
        with model.no_sync():
            loss(model, 0, ctx).backward()
        loss(model, 1, ctx).backward()
    mine = networks.expected_gradients(network(), networks.losses(range(2), ctx))
    yield networks.off("local gradients off", networks.gradients(model), mine)
    loss(model, 2, ctx).backward()
    averages = networks.expected_gradients(network(), networks.losses(range(3)))
    yield networks.off("gradients off", networks.gradients(model), averages)


def branches(rank: int) -> Any:
    """A network with a trunk for every rank, a branch for each of two ranks, and a branch for none."""
    import torch

    class Branches(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.trunk = torch.nn.Linear(7, 5)
            self.branches = torch.nn.ModuleList(torch.nn.Linear(5, 1) for _ in range(3))

        def forward(self, inputs: Any) -> Any:
            return self.branches[rank](self.trunk(inputs).tanh())

    return networks.filled(Branches())


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_parameters_of_one_rank(ctx: Context) -> Iterator[Check]:
    """With find_unused_parameters, parameters that one rank uses get its gradient over the number of ranks.

    Parameters that no rank uses keep what they have, here none.
    https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design
    """
    model = replicated(branches(ctx.place.rank), find_unused_parameters=True, **SMALL_BUCKETS)
    for step in STEPS:
        model.zero_grad()
        loss(model, step, ctx).backward()
        yield networks.off("gradients off", networks.gradients(model), of_branches(ctx, step))


def of_branches(ctx: Context, step: int) -> dict[str, Any]:
    """The averages of all ranks' gradients; a parameter that a rank does not use counts as zero there."""
    world = ctx.place.world_size
    inputs, targets = (each.tensor_split(world) for each in networks.data(step))
    plain = branches(0)
    total = 0
    for rank in range(world):
        outputs = plain.branches[rank](plain.trunk(inputs[rank]).tanh())
        total = total + (outputs - targets[rank]).square().mean() / world
    total.backward()  # type: ignore[attr-defined]
    return networks.gradients(plain)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_shared_parameter(ctx: Context) -> Iterator[Check]:
    """A parameter that a model uses twice gets the average of the sums of both uses."""
    model = replicated(twice(), **SMALL_BUCKETS)
    found = networks.train(model, momentum(model), STEPS, ctx)
    plain = twice()
    yield networks.worst_off("gradients off", found, networks.train(plain, momentum(plain), STEPS))


def twice() -> Any:
    """A network with a layer that is used twice, and whose weight is also the head's."""
    import torch

    class Twice(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.shared = torch.nn.Linear(7, 7)
            self.head = torch.nn.Linear(7, 7, bias=False)
            self.head.weight = self.shared.weight

        def forward(self, inputs: Any) -> Any:
            return self.head(self.shared(self.shared(inputs).tanh()).tanh()).sum(1, keepdim=True)

    return networks.filled(Twice())


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_float16_compression(ctx: Context) -> Iterator[Check]:
    """fp16_compress_hook averages gradients in float16, each rounded at most three times.

    https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook
    """
    yield from compressed(ctx, "fp16_compress_hook", 2.0**-11)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_bfloat16_compression(ctx: Context) -> Iterator[Check]:
    """bf16_compress_hook averages gradients in bfloat16, each rounded at most three times."""
    yield from compressed(ctx, "bf16_compress_hook", 2.0**-8)


def compressed(ctx: Context, hook: str, roundoff: float) -> Iterator[Check]:
    """Compare with the bound of rounding: each rank's gradient, its division and the sum are rounded."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = replicated(network(), **SMALL_BUCKETS)
    model.register_comm_hook(None, getattr(default_hooks, hook))
    found = networks.train(model, momentum(model), STEPS, ctx)[0]
    world = ctx.place.world_size
    parts = [of_rank(rank, world) for rank in range(world)]
    errors = []
    for name, gradient in found.items():
        exact = sum(part[name].double() for part in parts) / world
        size = sum(part[name].double().abs() for part in parts) / world
        errors.append(float(((gradient.double() - exact).abs() / size.clamp_min(1e-9)).max()))
    yield equal("parameters", len(found), len(parts[0]))
    yield at_most("gradient entry off, in roundings", max(errors) / roundoff, 3.0)
    yield at_least("gradient entry off, in roundings", max(errors) / roundoff, 0.01)
    coarse = "bfloat16" if hook.startswith("bf16") else "float16"
    yield equal("gradient entries that the dtype does not hold", not_held(found, coarse), 0)


def of_rank(rank: int, world: int) -> dict[str, Any]:
    plain = network()
    inputs, targets = (each.tensor_split(world)[rank] for each in networks.data(0))
    (plain(inputs) - targets).square().mean().backward()
    return networks.gradients(plain)


def not_held(found: dict[str, Any], dtype: str) -> int:
    import torch

    kind = getattr(torch, dtype)
    return sum(int((tensor.to(kind).float() != tensor).sum()) for tensor in found.values())


@call(GROUP, phase=Phase.WRAP, ranks=2)
def ddp_ignored_parameters(ctx: Context) -> Iterator[Check]:
    """DDP neither broadcasts nor averages ignored parameters, and broadcasts and averages all others."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model, rank = network(), ctx.place.rank
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(rank * 0.25)
    ignored = ["second.weight", "third.bias"]
    expected = {n: t - (0 if n in ignored else 0.25 * rank) for n, t in networks.weights(model).items()}
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)  # noqa: SLF001 - its only name
    wrapped = replicated(model, **SMALL_BUCKETS)
    yield networks.off("weights off", networks.weights(model), expected)
    for parameter, (_, value) in zip(model.parameters(), sorted_as(model, network()), strict=True):
        parameter.data.copy_(value)
    loss(wrapped, 0, ctx).backward()
    mine = networks.expected_gradients(network(), networks.losses([0], ctx))
    averages = networks.expected_gradients(network(), [loss])
    yield networks.off("gradients off", networks.gradients(model), {**averages, **{n: mine[n] for n in ignored}})


def sorted_as(model: Any, plain: Any) -> list[tuple[str, Any]]:
    values = networks.weights(plain)
    return [(name, values[name]) for name, _ in tiny.named(model)]
