"""Loaders of accelerate over streams and samplers: the rows of each rank and the number of batches that they announce.

https://huggingface.co/docs/accelerate/package_reference/torch_wrappers
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating import loader_settings
from cases.behaviour.parallel import loader_shards
from cases.behaviour.parallel.clipping import accelerator
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Rows of ranks"
SIZES = (8, 11, 12, 13, 16)
EPOCH = 3
BATCH, RANKS = 4, 2
EVERY_WAY = tuple(itertools.product((False, True), (False, True)))  # split_batches, drop_last


def sized(rows: int) -> Any:
    """A stream that knows its length."""
    import torch

    class CountedStream(torch.utils.data.IterableDataset):  # type: ignore[misc]  # as the stack, typed as Any
        def __iter__(self) -> Iterator[Any]:
            return iter([torch.tensor(number) for number in range(rows)])

        def __len__(self) -> int:
            return rows

    return CountedStream()


def prepared(ctx: Context, data: Any, rank: int, *, drop: bool, **chosen: Any) -> Any:
    """The loader of a rank of two, made in one process: no rank needs another one to read its rows."""
    import torch
    from accelerate.data_loader import prepare_data_loader

    accelerator(ctx)  # which knows the device
    plain = torch.utils.data.DataLoader(data, batch_size=BATCH, drop_last=drop)
    return prepare_data_loader(plain, num_processes=RANKS, process_index=rank, dispatch_batches=False, **chosen)


@call(GROUP, phase=Phase.LOAD)
def sized_stream_lengths(_ctx: Context) -> Iterator[Check]:
    """IterableDatasetShard of a stream with a length announces the rows that it gives each rank."""
    from accelerate.data_loader import IterableDatasetShard

    for ranks, drop in itertools.product((1, 2, 3), (False, True)):
        wrong = []
        for rows in loader_shards.SIZES:
            for rank in range(ranks):
                shard = IterableDatasetShard(sized(rows), 3, drop, ranks, rank)
                wrong += [rows] * (len(shard) != len(list(shard)) or not isinstance(len(shard), int))
        yield equal(f"sizes with another length, {ranks} ranks, drop_last={drop}", str(wrong), "[]")


@call(GROUP, phase=Phase.LOAD)
def sized_stream_lengths_split(_ctx: Context) -> Iterator[Check]:
    """With split_batches=True too, IterableDatasetShard announces the rows that it gives each rank."""
    from accelerate.data_loader import IterableDatasetShard

    for drop in (False, True):
        wrong = []
        for rows in loader_shards.SIZES:
            shard = IterableDatasetShard(sized(rows), 4, drop, 2, 0, split_batches=True)
            wrong += [rows] * (len(shard) != len(list(shard)))
        yield equal(f"sizes with another length, drop_last={drop}", str(wrong), "[]")


@call(GROUP, phase=Phase.LOAD)
def streams_on_ranks(ctx: Context) -> Iterator[Check]:
    """Each rank reads a stream for its own rows, parts of batches or batches in turn, with and without drop_last.

    The loader announces as many batches as it gives, as far as a stream knows its length.
    """
    yield from dealt(ctx, sized, counted=lambda split: not split)


@call(GROUP, phase=Phase.LOAD)
def datasets_on_ranks(ctx: Context) -> Iterator[Check]:
    """Each rank gets its rows of a data set with random access, parts of batches or batches in turn."""
    yield from dealt(ctx, lambda rows: list(range(rows)), counted=lambda _: True)


def dealt(ctx: Context, data: Callable[[int], Any], counted: Callable[[bool], bool]) -> Iterator[Check]:
    """Compare the rows of both ranks; ``counted``: whether the number of batches is compared too."""
    for split, drop in EVERY_WAY:
        wrong, other = [], []
        for rows in SIZES:
            deal = loader_shards.in_parts if split else loader_shards.in_turn
            expected = deal(rows, BATCH, RANKS, drop=drop, even=True)
            loaders = [prepared(ctx, data(rows), rank, drop=drop, split_batches=split) for rank in range(RANKS)]
            wrong += [rows] * ([loader_shards.read(each) for each in loaders] != expected)
            if counted(split):
                other += [rows] * ([len(each) for each in loaders] != [len(each) for each in expected])
        name = f"split_batches={split}, drop_last={drop}"
        yield equal(f"sizes with other rows, {name}", str(wrong), "[]")
        yield equal(f"sizes with another number of batches, {name}", str(other), "[]")


def batches_of(loader: Any) -> list[list[int]]:
    return [[int(each) for each in batch] for batch in loader]


@call(GROUP, phase=Phase.RESUME)
def skipping_leaves_the_rest(ctx: Context) -> Iterator[Check]:
    """skip_first_batches leaves the batches that follow, in the loader's epoch, for every kind of loader and sampler.

    A batch sampler may be given as the sampler of a loader that does not batch: https://docs.pytorch.org/docs/stable/data
    """
    import torch
    from accelerate import skip_first_batches
    from accelerate.data_loader import prepare_data_loader

    accelerator(ctx)
    numbers = list(range(SIZES[1]))
    batches = [numbers[begin : begin + BATCH] for begin in range(0, len(numbers), BATCH)]
    sampler = torch.utils.data.BatchSampler(numbers, BATCH, drop_last=False)
    rows = torch.tensor(numbers)

    def made(kind: str) -> Any:
        if kind == "a batch sampler as sampler":
            return torch.utils.data.DataLoader(rows, sampler=sampler, batch_size=None)
        data = loader_settings.stream(len(numbers)) if kind == "a stream" else numbers
        return torch.utils.data.DataLoader(data, batch_size=BATCH)

    for kind in ("rows", "a batch sampler as sampler", "a stream"):
        for title in ("as it is", "prepared", "dispatched"):
            if title != "as it is" and "sampler" in kind:
                continue  # prepare_data_loader gives DataLoaderShard two sizes of batches, up to accelerate 1.15
            loader, is_sent = made(kind), title == "dispatched"
            if title != "as it is":
                more = {"dispatch_batches": is_sent, "put_on_device": True, "device": torch.device("cpu")}
                loader = prepare_data_loader(loader, num_processes=1, process_index=0, **more)
                loader.set_epoch(EPOCH)
            for skipped in (0, 1, 2):
                rest = skip_first_batches(loader, skipped)
                found = batches_of(rest)
                yield equal(f"batches after {skipped}, {kind}, {title}", str(found), str(batches[skipped:]))
                if kind == "a stream" and title != "as it is":
                    yield equal(f"epoch after {skipped}, {kind}, {title}", rest.dataset.epochs[-1], EPOCH)


@call(GROUP, phase=Phase.LOAD)
def seedable_samplers(ctx: Context) -> Iterator[Check]:
    """use_seedable_sampler keeps what a RandomSampler draws: how many rows, and with or without replacement.

    The order of an epoch depends on the seed and the epoch alone, also with data_seed.
    """
    import torch
    from accelerate.utils import DataLoaderConfiguration, set_seed

    rows = list(range(40))
    for replaced, count in ((False, None), (False, 25), (True, None), (True, 70)):
        orders = []
        for seed, drawn in ((3, 0), (3, 5), (4, 0)):
            made = accelerator(ctx, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
            set_seed(seed)
            sampler = torch.utils.data.RandomSampler(rows, replacement=replaced, num_samples=count)
            given = made.prepare(torch.utils.data.DataLoader(rows, batch_size=5, sampler=sampler))
            torch.rand(drawn)
            orders.append([row for batch in loader_shards.read(given) for row in batch])
        name = f"replacement={replaced}, num_samples={count}"
        yield equal(f"rows drawn, {name}", len(orders[0]), count or len(rows))
        yield equal(f"rows drawn twice, {name}", len(set(orders[0])) < len(orders[0]), replaced)
        yield equal(f"the same order again, {name}", orders[0] == orders[1], bound=True)
        yield equal(f"the order of another seed, {name}", orders[0] == orders[2], bound=False)
