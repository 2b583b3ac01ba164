"""The buckets in which DDP reduces gradients, and buffers after passes without synchronisation.

https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.replicating import GROUP
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context

WIDTH, LAYERS = 256, 12  # weights of a quarter of a MiB, three MiB together
FIRST, MEBIBYTE = 2**20, 2**20  # the bound of the first bucket by default
CAPS: Mapping[str, tuple[dict[str, float], tuple[float, float]]] = {  # the bounds of the first and the other buckets
    "by default": ({}, (FIRST, 25 * MEBIBYTE)),
    "1.5 MiB": ({"bucket_cap_mb": 1.5}, (1.5 * MEBIBYTE, 1.5 * MEBIBYTE)),
    "0.6 MiB": ({"bucket_cap_mb": 0.6}, (0.6 * MEBIBYTE, 0.6 * MEBIBYTE)),
}


def filled_buckets(sizes: list[int], bounds: tuple[float, float]) -> list[int]:
    """The bytes of buckets, each of which takes gradients until it reaches its bound."""
    found: list[int] = []
    held = 0
    for size in sizes:
        held += size
        if held >= bounds[len(found) > 0]:
            found.append(held)
            held = 0
    return [*found, held] if held else found


@call(GROUP, phase=Phase.BACKWARD, ranks=2)
def ddp_bucket_sizes(_ctx: Context) -> Iterator[Check]:
    """DDP reduces few large buckets, of 25 MiB or of bucket_cap_mb, also after the step in which it orders them anew.

    The first bucket is smaller by default, so that reduction begins early.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    dist._DEFAULT_FIRST_BUCKET_BYTES = FIRST  # noqa: SLF001 - other calls in this process may have changed it
    weights = [4 * WIDTH * WIDTH] * LAYERS
    for title, (chosen, bounds) in CAPS.items():
        layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
        model = DistributedDataParallel(torch.nn.Sequential(*layers), **chosen)
        sizes: list[int] = []

        def reduced(bucket: Any, sizes: list[int] = sizes) -> Any:
            sizes.append(4 * bucket.buffer().numel())
            return allreduce_hook(None, bucket)

        model.register_comm_hook(None, lambda _, bucket, reduced=reduced: reduced(bucket))  # torch reads annotations
        for step in range(3):
            sizes.clear()
            model(tiny.values(f"inputs {step}", (2, WIDTH))).sum().backward()
            if step:
                wanted = filled_buckets(weights, bounds)
                yield equal(f"bytes of buckets, {title}, step {step}", str(sorted(sizes)), str(sorted(wanted)))


MOMENTUM = 0.25
Pass = tuple[bool, bool]  # whether a pass has gradients, and whether DDP synchronises them
SEQUENCES: Mapping[str, tuple[Pass, ...]] = {
    "every step": ((True, True),) * 3,
    "accumulation": ((True, False), (True, False), (True, True), (True, True)),
    "a pass without gradients": ((True, True), (False, True), (True, True), (True, True)),
}


def normalised() -> Any:
    import torch

    made = torch.nn.Sequential(torch.nn.BatchNorm1d(networks.WIDTHS[0], momentum=MOMENTUM))
    made.add_module("head", torch.nn.Linear(networks.WIDTHS[0], 1))
    return networks.filled(made)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def ddp_buffers_after_accumulation(ctx: Context) -> Iterator[Check]:
    """Running statistics start each pass from those of rank 0, also after passes without gradients or synchronisation.

    "Buffers are broadcast from the module in process of rank 0 to all other replicas in every iteration." An iteration
    ends with a synchronised pass.
    """
    import contextlib

    import torch
    from torch.nn.parallel import DistributedDataParallel

    for title, passes in SEQUENCES.items():
        model = DistributedDataParallel(normalised())
        running = torch.zeros(networks.WIDTHS[0], dtype=torch.float64)  # of rank 0
        wanted = running
        for step, (is_trained, is_synchronised) in enumerate(passes):
            inputs, _ = networks.data(step)
            first, own = (part.double().mean(0) for part in (inputs.tensor_split(2)[0], networks.share(inputs, ctx)))
            modes: list[Callable[[], Any]] = [] if is_synchronised else [model.no_sync]
            modes += [] if is_trained else [torch.no_grad]
            with contextlib.ExitStack() as stack:
                for mode in modes:
                    stack.enter_context(mode())
                found = model(networks.share(inputs, ctx))
                if is_trained:
                    found.mean().backward()
            wanted = (1 - MOMENTUM) * running + MOMENTUM * own  # if the pass began with the statistics of rank 0
            running = (1 - MOMENTUM) * running + MOMENTUM * first
        off = tolerance.relative(model.module[0].running_mean, wanted)
        yield at_most(f"running mean off, {title}", off, networks.SAME)
