"""Which rows each rank sees, and what accelerate's collectives return.

https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
https://huggingface.co/docs/accelerate/package_reference/accelerator
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel import networks
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.parallel.networks import loss, network
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of ranks"
ROWS, BATCH = 11, 4  # no number of ranks or batches divides the rows


@call(GROUP, phase=Phase.LOAD)
def distributed_sampler_rows(_ctx: Context) -> Iterator[Check]:
    """DistributedSampler deals every row once, repeats first or drops last ones, and shuffles by seed and epoch."""
    import torch
    from torch.utils.data import DistributedSampler

    for ranks, shuffle, drop in (
        (2, True, False),
        (3, True, True),
        (4, False, True),
        (5, True, False),
        (16, True, False),
    ):
        for epoch in (0, 3):
            found = []
            for rank in range(ranks):
                sampler = DistributedSampler(
                    range(ROWS), num_replicas=ranks, rank=rank, shuffle=shuffle, seed=5, drop_last=drop
                )
                sampler.set_epoch(epoch)
                found.append([*sampler])
            order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(5 + epoch)).tolist()
            expected = dealt(order if shuffle else [*range(ROWS)], ranks, drop=drop)
            yield equal(f"rows of {ranks} ranks in epoch {epoch}", str(found), str(expected))


def dealt(order: list[int], ranks: int, *, drop: bool) -> list[list[int]]:
    """Deal rows in turn; ranks get equally many, from a shortened list or one that starts again."""
    each = len(order) // ranks if drop else -(-len(order) // ranks)
    repeated = order * (1 + each * ranks // len(order))
    return [repeated[rank : each * ranks : ranks] for rank in range(ranks)]


def rows() -> list[dict[str, Any]]:
    import torch

    return [{"row": torch.tensor(number), "square": torch.tensor([number**2, number])} for number in range(ROWS)]


@call(GROUP, phase=Phase.LOAD, ranks=2)
def gather_for_metrics_uneven(ctx: Context) -> Iterator[Check]:
    """gather_for_metrics returns each row of an evaluation once, in order, though the last batch is not full."""
    yield from gathered(ctx)


@call(GROUP, phase=Phase.LOAD, ranks=2)
def gather_for_metrics_split_batches(ctx: Context) -> Iterator[Check]:
    """gather_for_metrics returns each row once if ranks split every batch."""
    yield from gathered(ctx, split_batches=True)


@call(GROUP, phase=Phase.LOAD, ranks=2)
def gather_for_metrics_dispatch_batches(ctx: Context) -> Iterator[Check]:
    """gather_for_metrics returns each row once if rank 0 reads and sends all batches."""
    yield from gathered(ctx, dispatch_batches=True)


def gathered(ctx: Context, **chosen: Any) -> Iterator[Check]:
    from accelerate.utils import DataLoaderConfiguration
    from torch.utils.data import DataLoader

    made = accelerator(ctx, dataloader_config=DataLoaderConfiguration(**chosen))
    loader = made.prepare(DataLoader(rows(), batch_size=BATCH))
    for epoch in range(2):
        numbers: list[int] = []
        squares: list[list[int]] = []
        mine = 0
        for batch in loader:
            mine += len(batch["row"])
            whole = made.gather_for_metrics((batch["row"], {"square": batch["square"]}))
            numbers += whole[0].tolist()
            squares += whole[1]["square"].tolist()
        yield equal(f"rows in epoch {epoch}", str(numbers), str([*range(ROWS)]))
        yield equal(f"squares in epoch {epoch}", str(squares), str([[n**2, n] for n in numbers]))
        yield equal("this rank saw all rows", mine >= ROWS, False)  # noqa: FBT003 - a value to compare


@call(GROUP, phase=Phase.OPTIMIZER, ranks=2)
def accelerator_accumulate(ctx: Context) -> Iterator[Check]:
    """With accumulate, accelerate divides losses, and steps after each group of batches and after the last batch.

    https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation
    """
    import torch
    from torch.utils.data import DataLoader

    steps, batches = 3, 7  # the last group has one batch
    made = accelerator(ctx, gradient_accumulation_steps=steps)
    model = network()
    plain = network()
    reference = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimiser, loader = made.prepare(model, optimiser, DataLoader(range(batches * ctx.place.world_size)))
    taken = []
    for number, _ in enumerate(loader):
        with made.accumulate(model):
            made.backward(loss(model, number, ctx))
            optimiser.step()
            optimiser.zero_grad()
            taken.append(made.sync_gradients)
    for number in range(batches):
        (loss(plain, number) / steps).backward()
        if (number + 1) % steps == 0 or number == batches - 1:
            reference.step()
            reference.zero_grad()
    yield equal("batches after which it steps", str([n for n, s in enumerate(taken, 1) if s]), "[3, 6, 7]")
    yield networks.off("weights off", networks.weights(model), networks.weights(plain))


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerator_collectives(ctx: Context) -> Iterator[Check]:
    """reduce, gather, pad_across_processes and broadcast return what their documentation says.

    The first three leave a rank its own numbers, so that a script can reduce a running sum again and again.

    https://huggingface.co/docs/accelerate/package_reference/utilities
    """
    import torch
    from accelerate.utils import broadcast

    made, rank, world = accelerator(ctx), ctx.place.rank, ctx.place.world_size
    mine = torch.tensor([1.0, 3.0]) * (rank + 1)
    own, total = mine.tolist(), torch.tensor([1.0, 3.0]) * sum(range(1, world + 1))
    yield equal("sum", str(made.reduce(mine, reduction="sum").tolist()), str(total.tolist()))
    yield equal("mean", str(made.reduce(mine, reduction="mean").tolist()), str((total / world).tolist()))
    nested = made.reduce({"a": [mine]}, reduction="sum")
    yield equal("sum in a dictionary", str(nested["a"][0].tolist()), str(total.tolist()))
    everyone = [[1.0 * (r + 1), 3.0 * (r + 1)] for r in range(world)]
    yield equal("gathered", str(made.gather(mine[None]).tolist()), str(everyone))
    yield equal("broadcast", str(broadcast(mine.clone(), from_process=1).tolist()), str(everyone[1]))
    long = torch.full((2, 2 + rank), 7)  # rank 1 has a column more
    for first in (False, True):
        found = made.pad_across_processes(long, dim=1, pad_index=-1, pad_first=first)
        pad = [-1] * (world - 1 - rank)
        line = [*pad, *[7] * (2 + rank)] if first else [*[7] * (2 + rank), *pad]
        yield equal(f"padded, pad_first={first}", str(found.tolist()), str([line] * 2))
    yield equal("this rank's numbers afterwards", str(mine.tolist()), str(own))
    yield equal("this rank's rows afterwards", str(long.tolist()), str([[7] * (2 + rank)] * 2))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def split_between_processes_uneven(ctx: Context) -> Iterator[Check]:
    """split_between_processes gives the first ranks a row more, or with apply_padding repeats the last row.

    https://huggingface.co/docs/accelerate/usage_guides/distributed_inference
    """
    import torch

    made, rank, world = accelerator(ctx), ctx.place.rank, ctx.place.world_size
    each, more = divmod(ROWS, world)
    start = rank * each + min(rank, more)
    mine = [*range(ROWS)][start : start + each + (rank < more)]
    padded = mine + [mine[-1]] * (each + (more > 0) - len(mine))
    for padding, wanted in ((False, mine), (True, padded)):
        with made.split_between_processes([*range(ROWS)], apply_padding=padding) as found:
            yield equal(f"list, apply_padding={padding}", str(found), str(wanted))
        with made.split_between_processes(torch.arange(ROWS), apply_padding=padding) as found:
            yield equal(f"tensor, apply_padding={padding}", str(found.tolist()), str(wanted))
    with made.split_between_processes({"a": [*range(ROWS)], "b": [*range(ROWS, 0, -1)]}) as found:
        yield equal("dictionary", str(found), str({"a": mine, "b": [ROWS - n for n in mine]}))
