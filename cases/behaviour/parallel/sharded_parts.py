"""Settings of FSDP1 and FSDP2 that change communication: each must leave the gradients of one process.

https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html, https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.apply import compat
from cases.behaviour.parallel import networks, sharded_networks
from cases.behaviour.parallel.networks import loss, network
from cases.behaviour.parallel.replicating import branches, momentum, of_branches
from cases.behaviour.parallel.sharded_networks import mesh
from cases.probes.distributed import DIVIDE_FACTOR
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cases.apply.context import Context

GROUP = "FSDP's documented behaviour"
STEPS = range(2)
LAYERS = networks.NAMES[:3]
# In some version:
GATHERS = ("all_gather_single", "all_gather_into_tensor", "all_gather", "_all_gather_base")
REDUCTIONS = ("reduce_scatter_single", "reduce_scatter_tensor", "reduce_scatter", "_reduce_scatter_base", "all_reduce")


def step_by_step(ctx: Context, model: Any, read: Any = networks.gradients) -> Check:
    """Train for two steps; compare the gradients of each with one process."""
    plain = network()
    expected = networks.train(plain, momentum(plain), STEPS)
    optimiser, found = momentum(model), []
    for step in STEPS:
        optimiser.zero_grad()
        loss(model, step, ctx).backward()
        found.append(read(model))
        optimiser.step()
    return networks.worst_off("gradients off", found, expected)


@contextlib.contextmanager
def calls_of(names: Iterable[str]) -> Iterator[list[int]]:
    """A list with an entry for each collective since the start; FSDP calls them through ``torch.distributed``."""
    import torch.distributed as dist

    seen: list[int] = []
    within: list[int] = []  # one of them may call another
    replaced = {name: getattr(dist, name) for name in names if hasattr(dist, name)}

    def counting(collective: Any) -> Any:
        def call_and_count(*arguments: Any, **named: Any) -> Any:
            seen.extend([] if within else [len(seen)])
            within.append(0)
            try:
                return collective(*arguments, **named)
            finally:
                within.pop()

        return call_and_count

    for name, collective in replaced.items():
        setattr(dist, name, counting(collective))
    try:
        yield seen
    finally:
        for name, collective in replaced.items():
            setattr(dist, name, collective)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=(*jobs.FSDP2, "fsdp2_prefetch"))
def fsdp2_forward_prefetch(ctx: Context) -> Iterator[Check]:
    """set_modules_to_forward_prefetch gathers the named modules with the first, and changes no gradient."""
    for prefetched, wanted in ((0, 2), (1, 3), (2, 4)):  # the root and the first layer, and those that follow
        model = sharded_networks.fsdp2(network(), ctx, LAYERS)
        model.first.set_modules_to_forward_prefetch([model.get_submodule(name) for name in LAYERS[1 : 1 + prefetched]])
        yield step_by_step(ctx, model)
        begun: list[int] = []
        with calls_of(GATHERS) as seen:
            model.first.register_forward_pre_hook(lambda *_, begun=begun, seen=seen: begun.append(len(seen)))
            loss(model, 0, ctx)
        yield equal(f"gathers before the first layer runs, {prefetched} prefetched", begun[0], wanted)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=(*jobs.FSDP2, "fsdp2_prefetch"))
def fsdp2_backward_prefetch(ctx: Context) -> Iterator[Check]:
    """set_modules_to_backward_prefetch changes no gradient, also if it names modules in another order."""
    model = sharded_networks.fsdp2(network(), ctx, LAYERS)
    model.third.set_modules_to_backward_prefetch([model.first, model.second])
    yield step_by_step(ctx, model)


@call(GROUP, phase=Phase.FORWARD, ranks=2, requires=jobs.FSDP2)
def fsdp2_reshard_after_forward(ctx: Context) -> Iterator[Check]:
    """reshard_after_forward frees weights after a forward pass, False keeps them, and a number shards them as far.

    The backward pass gathers freed weights again, and frees all of them.
    """
    for reshard, whole, again in ((True, 0, 3), (False, 3, 0), (ctx.place.world_size, 0, 3)):
        model = network()
        for name in LAYERS:
            compat.fully_shard()(model.get_submodule(name), mesh=mesh(ctx), reshard_after_forward=reshard)
        compat.fully_shard()(model, mesh=mesh(ctx), reshard_after_forward=False)
        with calls_of(GATHERS) as seen:
            result = loss(model, 0, ctx)
            forward = len(seen)
            layers = [model.get_submodule(name) for name in LAYERS]
            yield equal(f"layers whole after forward, {reshard}", sum(map(is_whole, layers)), whole)
            result.backward()
        yield equal(f"gathers of the backward pass, {reshard}", len(seen) - forward, again)
        yield equal(f"layers whole after backward, {reshard}", sum(map(is_whole, layers)), 0)
        model.zero_grad()
        yield step_by_step(ctx, model)


def is_whole(layer: Any) -> bool:
    return not hasattr(layer.weight, "full_tensor")


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=(*jobs.FSDP2, "fsdp2_keep_after_backward"))
def fsdp2_reshard_after_backward(ctx: Context) -> Iterator[Check]:
    """set_reshard_after_backward(False) keeps weights whole after a backward pass."""
    for reshard, whole in ((False, 3), (True, 0)):
        model = sharded_networks.fsdp2(network(), ctx, LAYERS)
        model.set_reshard_after_backward(reshard)
        loss(model, 0, ctx).backward()
        layers = [model.get_submodule(name) for name in LAYERS]
        yield equal(f"layers whole after backward, {reshard}", sum(map(is_whole, layers)), whole)
        model.reshard()
        for layer in layers:
            layer.reshard()
        yield networks.off("gradients off", networks.gradients(model), networks.expected_gradients(network(), [loss]))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=(*jobs.FSDP2, "fsdp2_divide_factor"))
def fsdp2_gradient_divide_factor(ctx: Context) -> Iterator[Check]:
    """A divide factor of a unit divides the sum of its gradients, and of no other unit, instead of the world size."""
    model = sharded_networks.fsdp2(network(), ctx, LAYERS)
    for name, factor in (("first", 5.0), ("second", 1.0)):
        unit = model.get_submodule(name)
        divide = next(name for name in DIVIDE_FACTOR if hasattr(unit, name))
        getattr(unit, divide)(factor)
    loss(model, 0, ctx).backward()
    factors = {"first": ctx.place.world_size / 5.0, "second": float(ctx.place.world_size)}
    exact = networks.expected_gradients(network(), [loss])
    expected = {name: gradient * factors.get(name.split(".")[0], 1.0) for name, gradient in exact.items()}
    yield networks.off("gradients off", networks.gradients(model), expected)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP2)
def fsdp2_accumulation_without_sync(ctx: Context) -> Iterator[Check]:
    """set_requires_gradient_sync(False) keeps gradients local; the next synchronised pass averages the sums."""
    model = sharded_networks.fsdp2(network(), ctx, LAYERS)
    for first in (0, 3):
        model.zero_grad()
        model.set_requires_gradient_sync(False)
        for step in (first, first + 1):
            loss(model, step, ctx).backward()
        yield equal("sharded gradients before the last pass", len(sharded_gradients(model)), 0)
        model.set_requires_gradient_sync(True)
        loss(model, first + 2, ctx).backward()
        terms = networks.losses(range(first, first + 3))
        yield networks.off("gradients off", networks.gradients(model), networks.expected_gradients(network(), terms))


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP2)
def fsdp2_replicas_of_whole_shards(ctx: Context) -> Iterator[Check]:
    """On a mesh of two replicas whose shards are whole, FSDP2 averages gradients over the replicas."""
    from torch.distributed.device_mesh import init_device_mesh

    replicas = init_device_mesh(ctx.place.kind, (ctx.place.world_size, 1), mesh_dim_names=("replicate", "shard"))
    yield step_by_step(ctx, sharded_networks.fsdp2(network(), ctx, mesh=replicas))


def sharded_gradients(model: Any) -> list[Any]:
    return [p.grad for p in model.parameters() if p.grad is not None and hasattr(p.grad, "full_tensor")]


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=(*jobs.FSDP2, "fsdp2_placement"))
def fsdp2_shards_of_columns(ctx: Context) -> Iterator[Check]:
    """shard_placement_fn shards chosen weights by columns, and changes no gradient."""
    from torch.distributed.tensor import Shard

    widths = (7, 6, 4, 8, 1)  # columns must be divisible by the number of ranks

    def placement(parameter: Any) -> Any:
        return Shard(1) if parameter.dim() > 1 and parameter.shape[1] % ctx.place.world_size == 0 else None

    model = sharded_networks.fsdp2(network(widths), ctx, LAYERS, shard_placement_fn=placement)
    held = {name: tuple(p.to_local().shape) for name, p in model.named_parameters() if name.endswith("weight")}
    yield equal("shape of a weight held", str(held["second.weight"]), "(4, 3)")
    yield equal("shape of a weight held", str(held["fourth.weight"]), "(1, 4)")
    loss(model, 0, ctx).backward()
    expected = networks.expected_gradients(network(widths), [loss])
    yield networks.off("gradients off", networks.gradients(model), expected)


@call(GROUP, phase=Phase.WRAP, ranks=2, requires=(*jobs.FSDP2, "fsdp2_ignored"))
def fsdp2_ignored_parameters(ctx: Context) -> Iterator[Check]:
    """ignored_params leaves parameters whole, and their gradients those of the rank."""
    model = network()
    ignored = {"second.weight", "fourth.bias"}
    chosen = {p for n, p in model.named_parameters() if n in ignored}
    sharded_networks.fsdp2(model, ctx, ("first",), ignored_params=chosen)
    whole = {name for name, p in model.named_parameters() if not hasattr(p, "full_tensor")}
    yield equal("parameters left whole", "+".join(sorted(whole)), "+".join(sorted(ignored)))
    loss(model, 0, ctx).backward()
    yield networks.off("gradients off", networks.gradients(model), with_local(ctx, ignored))


def with_local(ctx: Context, names: set[str]) -> dict[str, Any]:
    """The mean gradients, but for some parameters those of this rank's rows."""
    mine = networks.expected_gradients(network(), networks.losses([0], ctx))
    averages = networks.expected_gradients(network(), [loss])
    return {name: (mine if name in names else averages)[name] for name in averages}


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=jobs.FSDP2)
def fsdp2_unused_parameters(ctx: Context) -> Iterator[Check]:
    """Parameters that no rank uses get no gradient under FSDP2, and all others the mean."""
    model = sharded_networks.fsdp2(branches(0), ctx, ("trunk", "branches.0", "branches.1"))
    for step in STEPS:
        model.zero_grad()
        loss(model, step, ctx).backward()
        terms = networks.losses([step])
        expected = networks.expected_gradients(branches(0), terms)
        yield networks.off("gradients off", networks.gradients(model), expected)


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=(*jobs.FSDP2, "fsdp2_unused_parameters_reduced"))
def fsdp2_parameters_of_one_rank(ctx: Context) -> Iterator[Check]:
    """With set_reduce_scatter_unused_params, parameters that one rank uses get its gradient over the world size."""
    model = sharded_networks.fsdp2(branches(ctx.place.rank), ctx, ("trunk",))
    model.set_reduce_scatter_unused_params(True)
    loss(model, 0, ctx).backward()
    found = {
        name: gradient for name, gradient in networks.gradients(model).items() if not name.startswith("branches.2")
    }
    yield networks.off("gradients off", found, of_branches(ctx, 0))


@call(GROUP, phase=Phase.SAVE, ranks=2, requires=jobs.FSDP2)
def fsdp2_state_after_forward(ctx: Context) -> Iterator[Check]:
    """After a forward pass that leaves weights whole, FSDP2's state dict has shards, and loading reaches the model."""
    import torch

    expected = networks.weights(network())
    doubled = {name: 2 * each for name, each in expected.items()}
    model, other = (sharded_networks.fsdp2(network(), ctx, LAYERS, reshard_after_forward=False) for _ in range(2))
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2)
        for each in (model, other):
            loss(each, 0, ctx)
        held = model.state_dict()
        kinds = {type(each).__name__ for each in held.values()}
        yield equal("types in the state", "+".join(sorted(kinds)), "DTensor")
        yield networks.off("state off", {name: networks.whole(each) for name, each in held.items()}, expected, 0.0)
        loss(model, 0, ctx)
        model.load_state_dict(other.state_dict())
        yield networks.off("weights loaded off", networks.weights(model), doubled, 0.0)
        same = bool((loss(model, 1, ctx) == loss(other, 1, ctx)).all())
    yield equal("losses alike after loading", same, bound=True)
