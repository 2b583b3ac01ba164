"""The rows that accelerate's loaders give each rank: every size of a data set, restarts, orders, and streams.

https://huggingface.co/docs/accelerate/package_reference/torch_wrappers
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.trainers.stock_trainer import gathered
from cases.space.verdict import Check, Phase, at_least, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

    Batches = list[list[int]]

GROUP = "Rows of ranks"
ROWS, BATCH = 11, 2
SIZES = range(1, 27)  # from less than a batch to several rounds of batches
RANKS = (2, 3)


def completed(rows: Sequence[int], whole: int) -> list[int]:
    """The rows, and the first ones again until a multiple of ``whole`` is reached."""
    wanted = -(-len(rows) // whole) * whole
    return list(itertools.islice(itertools.cycle(rows), wanted))


def cut(rows: Sequence[int], size: int) -> Batches:
    return [list(rows[begin : begin + size]) for begin in range(0, len(rows), size)]


def in_turn(rows: int, batch: int, ranks: int, *, drop: bool, even: bool) -> list[Batches]:
    """Whole batches go to the ranks in turn.

    ``drop`` leaves out what gives not every rank a full batch; ``even`` begins again with the first rows instead.
    """
    order: Sequence[int] = range(rows)
    if drop:
        order = order[: rows - rows % (batch * ranks)]
    elif even:
        order = completed(order, batch * ranks)
    batches = cut(order, batch)
    return [batches[rank::ranks] for rank in range(ranks)]


def in_parts(rows: int, batch: int, ranks: int, *, drop: bool, even: bool) -> list[Batches]:
    """Each rank gets its part of every batch; a part without rows is left out."""
    order: Sequence[int] = range(rows)
    if drop:
        order = order[: rows - rows % batch]
    elif even:
        order = completed(order, batch)
    parts = [cut(each, batch // ranks) for each in cut(order, batch)]
    return [[of_batch[rank] for of_batch in parts if rank < len(of_batch)] for rank in range(ranks)]


def in_shares(rows: int, batch: int, ranks: int, *, drop: bool, even: bool) -> list[Batches]:
    """The rank that reads cuts what it read for all ranks into equal shares, also what is left at the end."""
    whole = batch * ranks
    order = range(rows - rows % whole) if drop else completed(range(rows), ranks) if even else range(rows)
    parts = [cut(each, -(-len(each) // ranks)) for each in cut(order, whole)]
    return [[of_batch[rank] for of_batch in parts if rank < len(of_batch)] for rank in range(ranks)]


def sharded(
    rows: int, batch: int, ranks: int, *, drop: bool, even: bool, split: bool
) -> tuple[list[Batches], list[int]]:
    """The batches of each rank by accelerate, and the number of batches that it announces."""
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    found = [
        BatchSamplerShard(BatchSampler(range(rows), batch, drop), ranks, rank, split_batches=split, even_batches=even)
        for rank in range(ranks)
    ]
    return [[list(each) for each in sampler] for sampler in found], [len(sampler) for sampler in found]


def of_every_size(*, split: bool) -> Iterator[Check]:
    for ranks, drop, even in itertools.product(RANKS, (False, True), (False, True)):
        batch = 2 * ranks if split else 3
        wrong, miscounted = [], []
        for rows in SIZES:
            found, lengths = sharded(rows, batch, ranks, drop=drop, even=even, split=split)
            expected = (in_parts if split else in_turn)(rows, batch, ranks, drop=drop, even=even)
            wrong += [rows] * (found != expected)
            # With parts, accelerate announces a batch for ranks that get nothing of the last one.
            miscounted += [rows] * (lengths != [len(each) for each in found] and not (split and not even))
        settings = f"{ranks} ranks, drop_last={drop}, even_batches={even}"
        yield equal(f"sizes with other rows, {settings}", str(wrong), "[]")
        yield equal(f"sizes with another length, {settings}", str(miscounted), "[]")


@call(GROUP, phase=Phase.LOAD)
def batch_sampler_shard(_ctx: Context) -> Iterator[Check]:
    """BatchSamplerShard deals batches in turn, for every size of a data set, with drop_last and even_batches."""
    yield from of_every_size(split=False)


@call(GROUP, phase=Phase.LOAD)
def batch_sampler_shard_split(_ctx: Context) -> Iterator[Check]:
    """BatchSamplerShard with split_batches=True gives each rank its part of every batch, for every size."""
    yield from of_every_size(split=True)


def stream(rows: int) -> Any:
    """Numbers that can only be iterated over."""
    import torch

    class NumberStream(torch.utils.data.IterableDataset):  # type: ignore[misc]  # as the stack, typed as Any
        def __iter__(self) -> Iterator[Any]:
            return iter([torch.tensor(number) for number in range(rows)])

    return NumberStream()


@call(GROUP, phase=Phase.LOAD)
def iterable_dataset_shard(_ctx: Context) -> Iterator[Check]:
    """IterableDatasetShard deals the rows of a stream as BatchSamplerShard does, or drops an incomplete round."""
    from accelerate.data_loader import IterableDatasetShard

    for ranks, drop, split in itertools.product(RANKS, (False, True), (False, True)):
        batch, wrong = (2 * ranks if split else 3), []
        for rows in SIZES:
            found = [
                [int(row) for row in IterableDatasetShard(stream(rows), batch, drop, ranks, rank, split_batches=split)]
                for rank in range(ranks)
            ]
            expected = (in_parts if split else in_turn)(rows, batch, ranks, drop=drop, even=True)
            wrong += [rows] * (found != [[row for each in of_rank for row in each] for of_rank in expected])
        yield equal(f"sizes with other rows, {ranks} ranks, drop_last={drop}, split_batches={split}", str(wrong), "[]")


def loader(ctx: Context, *, shuffled: bool = True, rows: int = ROWS, **chosen: Any) -> tuple[Any, Any]:
    """An Accelerator, and a loader of it with batches of two rows for each rank."""
    import torch
    from accelerate.utils import DataLoaderConfiguration, set_seed

    made = accelerator(ctx, dataloader_config=DataLoaderConfiguration(**chosen))
    set_seed(5)
    return made, made.prepare(torch.utils.data.DataLoader(list(range(rows)), batch_size=BATCH, shuffle=shuffled))


def read(batches: Any) -> Batches:
    return [[int(row) for row in batch] for batch in batches]


@call(GROUP, phase=Phase.RESUME, ranks=2)
def skip_first_batches_two_ranks(ctx: Context) -> Iterator[Check]:
    """skip_first_batches leaves the rest of a shuffled epoch as it is, on every rank, and the next epoch whole."""
    for chosen in ({}, {"use_seedable_sampler": True}, {"split_batches": True}):
        yield from after_two_batches(ctx, **chosen)


@call(GROUP, phase=Phase.RESUME, ranks=2)
def skip_first_batches_dispatched(ctx: Context) -> Iterator[Check]:
    """skip_first_batches skips batches of every rank, also if rank 0 reads for all, so that no row is seen again.

    accelerate 1.2 to 1.15 skip batches of rank 0's loader, of which each step takes one for every rank.
    """
    yield from after_two_batches(ctx, dispatch_batches=True)


@call(GROUP, phase=Phase.RESUME, ranks=2)
def skip_first_batches_of_streams(ctx: Context) -> Iterator[Check]:
    """skip_first_batches leaves the rest of a stream as it is, if each rank reads it or rank 0 reads for all.

    With drop_last, rows at the end that do not give every rank a full batch stay out after skipping, too.
    """
    import torch
    from accelerate.utils import DataLoaderConfiguration

    rows = 2 * ROWS  # five batches of both ranks, and one batch
    for dispatched, drop in itertools.product((False, True), (False, True)):
        made = accelerator(ctx, dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatched))
        given = made.prepare(torch.utils.data.DataLoader(stream(rows), batch_size=BATCH, drop_last=drop))
        title = f"dispatch_batches={dispatched}, drop_last={drop}"
        rule = in_shares if dispatched else in_turn
        expected = rule(rows, BATCH, 2, drop=drop, even=True)[ctx.place.rank]
        yield equal(f"rows of the stream, {title}", str(read(given)), str(expected))
        for number in (0, 1, 3):
            rest = read(made.skip_first_batches(given, number))
            yield equal(f"rest of the stream, {number}, {title}", str(rest), str(expected[number:]))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def gather_for_metrics_within_training(ctx: Context) -> Iterator[Check]:
    """An evaluation within an epoch of training gathers each row once, and the epoch ends where it would without."""
    import torch

    made, training = loader(ctx, shuffled=False)
    evaluated = made.prepare(torch.utils.data.DataLoader(list(range(5)), batch_size=BATCH))
    ends = []
    for number, _ in enumerate(training):
        rows = [int(row) for batch in evaluated for row in made.gather_for_metrics(batch)]
        yield equal(f"rows gathered after batch {number}", str(rows), "[0, 1, 2, 3, 4]")
        ends.append(made.gradient_state.end_of_dataloader)
    ends.append(made.gradient_state.end_of_dataloader)
    yield equal("ends of the training's loader", str(ends), str([False, False, True, False]))


def after_two_batches(ctx: Context, **chosen: Any) -> Iterator[Check]:
    _, whole = loader(ctx, **chosen)
    first, second = read(whole), read(whole)
    made, fresh = loader(ctx, **chosen)
    name = ", ".join(chosen) or "default"
    yield equal(f"rest of the epoch, {name}", str(read(made.skip_first_batches(fresh, 2))), str(first[2:]))
    if "use_seedable_sampler" in chosen:
        fresh.set_epoch(1)
        yield equal(f"next epoch, {name}", str(read(fresh)), str(second))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def seedable_sampler_orders(ctx: Context) -> Iterator[Check]:
    """With use_seedable_sampler, set_epoch alone determines the order, which all ranks share and epochs do not."""
    import torch

    _, given = loader(ctx, use_seedable_sampler=True)
    orders: dict[int, list[int]] = {}
    for epoch in (3, 0, 3):
        given.set_epoch(epoch)
        torch.rand(epoch + ctx.place.rank)  # random numbers that a script draws do not matter
        parts = gathered(ctx, read(given))
        order = [row for batches in zip(*parts, strict=True) for batch in batches for row in batch]
        yield equal(f"rows of epoch {epoch}", str(sorted(set(order))), str(list(range(ROWS))))
        yield equal(f"order of epoch {epoch} again", str(order), str(orders.setdefault(epoch, order)))
    yield equal("epochs with the same order", int(orders[0] == orders[3]), 0)


@call(GROUP, phase=Phase.LOAD, ranks=2)
def loader_attributes(ctx: Context) -> Iterator[Check]:
    """A prepared loader knows its batch size over all ranks, its rows, its last batch and what that lacks."""
    _, given = loader(ctx, shuffled=False)
    yield equal("total_batch_size", given.total_batch_size, BATCH * ctx.place.world_size)
    yield equal("total_dataset_length", given.total_dataset_length, ROWS)
    yield equal("batches", len(given), 3)
    ends = [(given.end_of_dataloader, given.remainder) for _ in given]
    yield equal("last batch and rows in it", str(ends), str([(False, 3), (False, 3), (True, 3)]))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def loader_attributes_by_setting(ctx: Context) -> Iterator[Check]:
    """Loaders know their sizes and gather each row once, whether ranks share a batch or take whole ones in turn.

    With split_batches, the batch size of the script is that of all ranks together. drop_last leaves out what lacks.
    """
    import torch
    from accelerate.utils import DataLoaderConfiguration

    ranks, batch = ctx.place.world_size, 4
    for rows, split, drop in itertools.product((5, 8, 11, 12, 14), (False, True), (False, True)):
        made = accelerator(ctx, dataloader_config=DataLoaderConfiguration(split_batches=split))
        given = made.prepare(torch.utils.data.DataLoader(torch.arange(rows), batch_size=batch, drop_last=drop))
        total = batch if split else batch * ranks
        wanted = (in_parts if split else in_turn)(rows, batch, ranks, drop=drop, even=True)[ctx.place.rank]
        title = f"{rows} rows, split_batches={split}, drop_last={drop}"
        if not wanted:  # earlier versions give one batch that is None
            continue
        yield equal(f"total_batch_size, {title}", given.total_batch_size, total)
        yield equal(f"total_dataset_length, {title}", given.total_dataset_length, rows)
        yield equal(f"batches announced, {title}", len(given), len(wanted))
        found, kept, ends = [], [], []
        for each in given:
            found.append(each.tolist())
            kept += made.gather_for_metrics(each).tolist()
            ends.append((given.end_of_dataloader, given.remainder))
        yield equal(f"rows of this rank, {title}", str(found), str(wanted))
        yield equal(f"rows gathered, {title}", str(kept), str(list(range(rows - rows % total if drop else rows))))
        lacking = -1 if drop else rows % total
        expected = [(number + 1 == len(wanted), lacking) for number in range(len(wanted))]
        yield equal(f"last batch and rows in it, {title}", str(ends), str(expected))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def join_uneven_inputs(ctx: Context) -> Iterator[Check]:
    """With even_batches=False, join_uneven_inputs gives each row once within its block; some come twice after it.

    accelerate supports it on GPUs only, so that the cell changes the type in accelerate's state on a CPU.
    """
    import torch
    from accelerate.utils import DistributedType

    made, given = loader(ctx, shuffled=False, rows=5)
    model = made.prepare(torch.nn.Linear(1, 1, bias=False))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    steps = 0
    made.state.distributed_type = DistributedType.MULTI_GPU
    with made.join_uneven_inputs([model], even_batches=False):
        mine = []
        for batch in given:
            model(batch[:, None].float()).sum().backward()
            optimiser.step()
            mine += [int(row) for row in batch]
            steps += 1
    yield equal("rows within", str(sorted(row for part in gathered(ctx, mine) for row in part)), "[0, 1, 2, 3, 4]")
    yield equal("steps of rank 0 and 1", str(gathered(ctx, steps)), "[2, 1]")
    after = gathered(ctx, [row for batch in read(given) for row in batch])
    yield equal("rows after", str(after), "[[0, 1, 4, 0], [2, 3, 1, 2]]")


@call(GROUP, phase=Phase.LOAD, ranks=2)
def gather_for_metrics_objects(ctx: Context) -> Iterator[Check]:
    """gather_for_metrics of objects, and of nested tensors, keeps each row of an evaluation once and in order."""
    made, given = loader(ctx, shuffled=False)
    words: list[str] = []
    pairs: Batches = []
    for batch in given:
        words += made.gather_for_metrics([f"row {int(row)}" for row in batch], use_gather_object=True)
        found = made.gather_for_metrics({"pairs": [batch[:, None] * 2, (batch,)]})
        pairs += [[int(one), int(other)] for one, other in zip(found["pairs"][0], found["pairs"][1][0], strict=True)]
    yield equal("objects", str(words), str([f"row {row}" for row in range(ROWS)]))
    yield equal("nested tensors", str(pairs), str([[2 * row, row] for row in range(ROWS)]))
    yield at_least("rows gathered", len(pairs), ROWS)
