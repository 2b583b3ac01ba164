"""Arguments of DDP that change when and how it synchronises: none of them may change the averaged gradients.

https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import collections
import inspect
import time
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.networks import data, loss, network
from cases.behaviour.parallel.replicating import GROUP
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from cases.apply.context import Context

STEPS = 3
MEBIBYTE = 2**20
FIRST = 2**20  # "DDP picks a smaller size for the first bucket": 1 MiB, torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
SMALL = 1e-5  # MiB, less than a parameter: each of them has its own bucket
# By name of what is tried: the arguments of DDP.
KINDS: Mapping[str, dict[str, Any]] = {
    "small buckets": {"bucket_cap_mb": SMALL},
    "views of buckets": {"gradient_as_bucket_view": True},
    "copies of a bucket together": {"batched_grad_copy": True},
    "copies of small buckets together": {"batched_grad_copy": True, "bucket_cap_mb": SMALL},
    "views and copies together": {"batched_grad_copy": True, "gradient_as_bucket_view": True},
    "buckets made late": {"lazy_bucket_allocation": True},
    "small buckets made late": {"lazy_bucket_allocation": True, "bucket_cap_mb": SMALL},
    "views of buckets made late": {"lazy_bucket_allocation": True, "gradient_as_bucket_view": True},
    "no buffers": {"forward_sync_buffers": False},
    "unused parameters skipped": {"skip_all_reduce_unused_params": True, "find_unused_parameters": True},
    "static": {"static_graph": True},
    "static small buckets": {"static_graph": True, "bucket_cap_mb": SMALL},
    "sizes of buckets by list": {"bucket_cap_mb_list": [SMALL, 1.0]},
}


def replicated(model: Any, **chosen: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, **chosen)


def known(chosen: Mapping[str, Any]) -> bool:
    from torch.nn.parallel import DistributedDataParallel

    return chosen.keys() <= inspect.signature(DistributedDataParallel.__init__).parameters.keys()


def expected() -> list[dict[str, Any]]:
    import torch

    model = network()
    return networks.train(model, torch.optim.SGD(model.parameters(), lr=0.1), range(STEPS))


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_arguments_of_reduction(ctx: Context) -> Iterator[Check]:
    """Whatever arguments DDP gets for its buckets and copies, each step has the gradients of one process."""
    import torch

    wanted = expected()
    for title, chosen in KINDS.items():
        if known(chosen):
            model = replicated(network(), **chosen)
            found = networks.train(model, torch.optim.SGD(model.parameters(), lr=0.1), range(STEPS), ctx)
            yield networks.worst_off(f"gradients off: {title}", found, wanted)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_accumulates_with_arguments(ctx: Context) -> Iterator[Check]:
    """The same arguments with no_sync: a step has the mean over the ranks of the sums of all of its passes."""
    wanted = networks.expected_gradients(network(), networks.losses(range(STEPS)))
    for title, chosen in KINDS.items():
        if known(chosen) and not chosen.get("static_graph"):  # whose passes have to be alike
            model = replicated(network(), **chosen)
            for _ in range(2):  # the second time, DDP has ordered its buckets by the first one
                model.zero_grad()
                with model.no_sync():
                    for step in range(STEPS - 1):
                        loss(model, step, ctx).backward()
                loss(model, STEPS - 1, ctx).backward()
            yield networks.off(f"gradients off: {title}", networks.gradients(model), wanted)


@call(GROUP, phase=Phase.WRAP, ranks=2)
def ddp_starts_apart_or_alike(ctx: Context) -> Iterator[Check]:
    """DDP starts with the parameters and buffers of rank 0; with init_sync=False, each rank keeps its own."""
    import torch

    def own() -> Any:
        made = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        with torch.no_grad():
            for each in (*made.parameters(), made[1].running_mean, made[1].running_var):
                each.fill_(ctx.place.rank + 1)
        return made

    kinds: tuple[tuple[str, dict[str, Any], float, float], ...] = (
        ("by default", {}, 1.0, 1.0),
        ("init_sync=True", {"init_sync": True}, 1.0, 1.0),
        ("init_sync=False", {"init_sync": False}, ctx.place.rank + 1.0, ctx.place.rank + 1.0),
        ("broadcast_buffers=False", {"broadcast_buffers": False}, 1.0, ctx.place.rank + 1.0),
        ("forward_sync_buffers=False", {"forward_sync_buffers": False}, 1.0, 1.0),
    )
    for title, chosen, weight, mean in kinds:
        if known(chosen):
            model = replicated(own(), **chosen).module
            yield equal(f"weights, {title}", str({float(each) for each in model[0].weight.flatten()}), str({weight}))
            yield equal(f"running means, {title}", str({float(each) for each in model[1].running_mean}), str({mean}))


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_delays_named_parameters(ctx: Context) -> Iterator[Check]:
    """Parameters in delay_all_reduce_named_params get the averaged gradient when that of another one is ready.

    The gradients are read a while after the backward pass; ``ddp_waits_for_delayed_parameters`` reads them at once.
    """
    import torch

    whole = network()
    loss(whole).backward()
    for late in (("third",), ("second", "third", "fourth")):
        model = delaying(network(), late)
        loss(model, 0, ctx).backward()
        torch.distributed.barrier()
        time.sleep(AVERAGED_S)
        title = f"gradients off: {', '.join(late)} delayed"
        yield networks.off(title, networks.gradients(model), networks.gradients(whole))


AVERAGED_S = 0.5  # enough to average a few numbers


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_waits_for_delayed_parameters(ctx: Context) -> Iterator[Check]:
    """When a backward pass returns, the gradients of delayed parameters are averaged, also large ones.

    "delay_all_reduce_named_params: a list of named parameters whose all reduce will be delayed when the gradient of the
    parameter specified in param_to_hook_all_reduce is ready."
    """
    import torch

    layers = {"first": torch.nn.Linear(64, 64), "large": torch.nn.Linear(64, LARGE, bias=False)}
    plain = torch.nn.Sequential(collections.OrderedDict(layers))
    model = delaying(plain, ("large",))
    (model(torch.ones(1, 64)).sum() * (1 + ctx.place.rank)).backward()
    found = plain.large.weight.grad[:: LARGE // 64].clone()
    torch.distributed.barrier()
    time.sleep(AVERAGED_S)
    inputs = plain.first(torch.ones(1, 64)).detach()
    yield at_most("gradients off as the pass returns", (found - 1.5 * inputs).abs().max() / inputs.abs().max(), 1e-5)


LARGE = 1 << 16  # rows of 64 numbers: 16 MiB, which take some milliseconds to average


def delaying(plain: Any, late: Collection[str]) -> Any:
    """DDP that averages the gradients of some layers when that of the first weight is ready."""
    delayed = [(name, each) for name, each in plain.named_parameters() if name.partition(".")[0] in late]
    return replicated(plain, delay_all_reduce_named_params=delayed, param_to_hook_all_reduce=plain.first.weight)


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_first_buckets(_ctx: Context) -> Iterator[Check]:
    """By default, DDP reduces a first bucket of 1 MiB and further ones of 25 MiB.

    "bucket_cap_mb: If None, a default size of 25 MiB will be used." The first bucket, which is smaller so that
    reduction begins early, has the size of torch.distributed._DEFAULT_FIRST_BUCKET_BYTES, which scripts may set.
    """
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    width, layers = 1280, 9  # weights of 6.25 MiB: four make a bucket of 25 MiB
    weight = 4 * width * width
    model = replicated(torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)]))
    sizes: list[int] = []

    def reduced(_: Any, bucket: Any) -> Any:
        sizes.append(4 * bucket.buffer().numel())
        return allreduce_hook(None, bucket)

    reduced.__annotations__ = {}  # torch wants its own classes there, not words
    model.register_comm_hook(None, reduced)
    for step in range(2):
        sizes.clear()
        inputs, _ = data(step, width, rows=2)
        model(inputs).sum().backward()
    wanted = [weight, 4 * weight, 4 * weight]
    yield equal("bytes of buckets", str(sorted(sizes)), str(sorted(wanted)))
    yield equal("bytes of the first bucket", torch.distributed._DEFAULT_FIRST_BUCKET_BYTES, FIRST)  # noqa: SLF001
    yield equal("bytes of other buckets", model.bucket_bytes_cap, 25 * MEBIBYTE)
