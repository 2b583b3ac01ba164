"""Loaders of accelerate: the rows that each rank gets, the order of each epoch, and what a saved state restores.

https://huggingface.co/docs/accelerate/package_reference/torch_wrappers
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.parallel.networks import loss, network
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "accelerate: loaders"
SIZES, BATCHES, RANKS = range(1, 14), (1, 2, 3, 4), (1, 2, 3, 4)
SEED = 7

Shares = list[list[list[int]]]  # by rank, by batch, rows


def batches(rows: Sequence[int], size: int, *, drop: bool = False) -> list[list[int]]:
    found = [[*rows[start : start + size]] for start in range(0, len(rows), size)]
    return [each for each in found if len(each) == size or not drop]


def dealt(rows: int, size: int, ranks: int, *, drop: bool) -> Shares:
    """Whole batches in turn. The rows start again until every rank has as many, or the rest is dropped."""
    per_turn = size * ranks
    turns = rows // per_turn if drop else -(-rows // per_turn)
    every = batches([row % rows for row in range(turns * per_turn)], size)
    return [every[rank::ranks] for rank in range(ranks)]


def uneven(rows: int, size: int, ranks: int) -> Shares:
    """Whole batches in turn, without repetition: some ranks get fewer, or a shorter one."""
    every = batches(range(rows), size)
    return [every[rank::ranks] for rank in range(ranks)]


def cut(rows: int, size: int, ranks: int, *, drop: bool) -> Shares:
    """Each batch is cut into a piece for each rank; the last one starts again from the first rows, or is dropped."""
    turns = rows // size if drop else -(-rows // size)
    pieces = batches([row % rows for row in range(turns * size)], size // ranks)
    return [pieces[rank::ranks] for rank in range(ranks)]


def differing(found: Shares, wanted: Shares) -> bool:
    """Return whether shares differ. Where fewer rows than one turn exist, which rows repeat is not documented."""
    rows = {row for share in wanted for batch in share for row in batch}
    turn = sum(len(share[0]) for share in wanted if share)
    if len(rows) >= turn or not rows:
        return found != wanted
    sizes = [[len(batch) for batch in share] for share in wanted]
    seen = {row for share in found for batch in share for row in batch}
    return sizes != [[len(batch) for batch in share] for share in found] or seen != rows


@call(GROUP, phase=Phase.LOAD)
def batch_sampler_shares(_ctx: Context) -> Iterator[Check]:
    """BatchSamplerShard deals or cuts batches, and repeats the first rows or drops the last, for any number of them."""
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    def shares(rows: int, size: int, ranks: int, *, drop: bool = False, **chosen: bool) -> Shares:
        plain = BatchSampler(range(rows), size, drop)
        return [[*BatchSamplerShard(plain, ranks, rank, **chosen)] for rank in range(ranks)]

    off_by: dict[str, list[str]] = {"dealt": [], "uneven": [], "cut": []}
    for rows, size, ranks in product(SIZES, BATCHES, RANKS):
        place = f"{rows} rows, batches of {size}, {ranks} ranks"
        for drop in (False, True):
            if differing(shares(rows, size, ranks, drop=drop), dealt(rows, size, ranks, drop=drop)):
                off_by["dealt"].append(f"{place}, drop_last={drop}")
            wanted = cut(rows, size * ranks, ranks, drop=drop)
            if differing(shares(rows, size * ranks, ranks, drop=drop, split_batches=True), wanted):
                off_by["cut"].append(f"{place}, drop_last={drop}")
        if shares(rows, size, ranks, even_batches=False) != uneven(rows, size, ranks):
            off_by["uneven"].append(place)
    yield from (equal(f"shares other than {kind}", first(each), "none") for kind, each in off_by.items())


def first(places: list[str]) -> str:
    return f"{len(places)}: {places[0]}" if places else "none"


@call(GROUP, phase=Phase.LOAD)
def batch_sampler_lengths(_ctx: Context) -> Iterator[Check]:
    """The length of a BatchSamplerShard is the number of batches that it yields."""
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    wrong = []
    for rows, size, ranks, drop, even in product(SIZES, BATCHES, RANKS, (False, True), (False, True)):
        for rank, split in product(range(ranks), (False, True)):
            plain = BatchSampler(range(rows), size * (ranks if split else 1), drop)
            shard = BatchSamplerShard(plain, ranks, rank, split_batches=split, even_batches=even)
            # Cutting an uneven last batch may leave nothing for the last ranks; the length then counts it for all.
            if len(shard) != len([*shard]) and (even or not split):
                wrong.append(f"{rows} rows, batches of {size}, rank {rank} of {ranks}, drop_last={drop}, split={split}")
    yield equal("lengths off", first(wrong), "none")


@call(GROUP, phase=Phase.LOAD)
def iterable_shares(_ctx: Context) -> Iterator[Check]:
    """IterableDatasetShard deals the rows of a stream in turn, and repeats the first or drops the last."""
    from accelerate.data_loader import IterableDatasetShard

    wrong = []
    for rows, size, ranks, drop in product(SIZES, BATCHES, RANKS, (False, True)):
        for split in (False, True):
            turn = size * ranks
            stream: Any = range(rows)
            found = [
                [*IterableDatasetShard(stream, turn if split else size, drop, ranks, rank, split_batches=split)]
                for rank in range(ranks)
            ]
            wanted = [[row for batch in share for row in batch] for share in dealt(rows, size, ranks, drop=drop)]
            if found != wanted:
                wrong.append(f"{rows} rows, batches of {size}, {ranks} ranks, drop_last={drop}, split_batches={split}")
    yield equal("shares other than dealt", first(wrong), "none")


@call(GROUP, phase=Phase.LOAD)
def seedable_sampler_order(_ctx: Context) -> Iterator[Check]:
    """SeedableRandomSampler orders each epoch by the seed plus the epoch's number, and counts epochs by itself."""
    from accelerate.data_loader import SeedableRandomSampler

    sampler = SeedableRandomSampler(range(9), data_seed=SEED)
    for epoch in range(3):
        yield equal(f"order of epoch {epoch}", str([*sampler]), str(order(9, SEED + epoch)))
    sampler.set_epoch(1)
    yield equal("order of epoch 1 again", str([*sampler]), str(order(9, SEED + 1)))


def order(rows: int, seed: int) -> list[int]:
    import torch

    found: list[int] = torch.randperm(rows, generator=torch.Generator().manual_seed(seed)).tolist()
    return found


def seen(loader: Any) -> list[int]:
    return [int(row) for batch in loader for row in batch]


@call(GROUP, phase=Phase.LOAD)
def prepared_loader_epochs(ctx: Context) -> Iterator[Check]:
    """A prepared loader shuffles anew in each epoch, and set_epoch repeats the order of an epoch."""
    import torch
    from accelerate.utils import DataLoaderConfiguration
    from torch.utils.data import DataLoader

    made = accelerator(ctx, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    torch.manual_seed(SEED)
    loader = made.prepare(DataLoader(range(13), batch_size=2, shuffle=True))
    epochs = [seen(loader) for _ in range(4)]
    yield equal("epochs of the same order", 4 - len({str(each) for each in epochs}), 0)
    yield equal("epochs that lack a row", sum(sorted(each) != [*range(13)] for each in epochs), 0)
    for epoch in (2, 0):
        loader.set_epoch(epoch)
        yield equal(f"order of epoch {epoch}", str(seen(loader)), str(epochs[epoch]))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def prepared_twice(ctx: Context) -> Iterator[Check]:
    """Preparing a loader, an optimiser and a schedule twice changes nothing."""
    import torch
    from torch.utils.data import DataLoader

    made = accelerator(ctx)
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 0.5**step)
    once = made.prepare(DataLoader(range(10), batch_size=2), optimiser, schedule)
    loader, optimiser, schedule = made.prepare(*once)
    names = ("loader", "optimiser", "schedule")
    same = [name for name, one, two in zip(names, once, (loader, optimiser, schedule), strict=True) if one is two]
    yield equal("objects that are kept", "+".join(same), "+".join(names))
    mine = dealt(10, 2, ctx.place.world_size, drop=False)[ctx.place.rank]
    yield equal("rows", str(seen(loader)), str([row for batch in mine for row in batch]))
    optimiser.step()
    schedule.step()
    yield equal("learning rate", schedule.get_last_lr()[0], 0.5**ctx.place.world_size)


@call(GROUP, phase=Phase.LOAD, ranks=2)
def split_between_processes_even(ctx: Context) -> Iterator[Check]:
    """split_between_processes with apply_padding adds nothing to inputs that are dealt evenly, and fills up others."""
    made, rank, world = accelerator(ctx), ctx.place.rank, ctx.place.world_size
    for rows in range(1, 3 * world + 1):
        each = -(-rows // world)
        start = sum(rows // world + (before < rows % world) for before in range(rank))
        mine = [*range(start, start + rows // world + (rank < rows % world))]
        wanted = mine + [rows - 1] * (each - len(mine))
        with made.split_between_processes([*range(rows)], apply_padding=True) as found:
            yield equal(f"share of {rows} rows", str(found), str(wanted))


@call(GROUP, phase=Phase.RESUME)
def save_state_within_accumulation(ctx: Context) -> Iterator[Check]:
    """A state saved between two accumulated batches steps after the batch after which it would have stepped."""
    import torch

    folder = str(ctx.kept / "state")
    stop, last = 2, 8  # of batches; a step takes two

    def run(begin: int, *, load: bool) -> list[bool]:
        made = accelerator(ctx, gradient_accumulation_steps=2)
        model = network()
        model, optimiser = made.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        if load:
            made.load_state(folder)
        steps = []
        for number in range(begin, last):
            with made.accumulate(model):
                made.backward(loss(model, number, ctx))
                steps.append(made.sync_gradients)
                optimiser.step()
                optimiser.zero_grad()
            if number == stop and not load:
                made.save_state(folder)
        return steps

    whole = run(0, load=False)
    yield equal("steps", str(whole), str([number % 2 == 1 for number in range(last)]))
    yield equal("steps after resuming", str(run(stop + 1, load=True)), str(whole[stop + 1 :]))
