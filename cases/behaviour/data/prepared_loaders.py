"""Loaders of accelerate: the order of each epoch, a second preparation, and what a saved state restores.

https://huggingface.co/docs/accelerate/package_reference/torch_wrappers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.parallel.clipping import accelerator
from cases.behaviour.parallel.networks import loss, network
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "accelerate: loaders"
SEED = 7


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
    once = made.prepare(DataLoader(range(8 * ctx.place.world_size), batch_size=2), optimiser, schedule)
    loader, optimiser, schedule = made.prepare(*once)
    names = ("loader", "optimiser", "schedule")
    same = [name for name, one, two in zip(names, once, (loader, optimiser, schedule), strict=True) if one is two]
    yield equal("objects that are kept", "+".join(same), "+".join(names))
    world = ctx.place.world_size
    mine = [first + more for first in range(2 * ctx.place.rank, 8 * world, 2 * world) for more in range(2)]
    yield equal("rows", str(seen(loader)), str(mine))
    optimiser.step()
    schedule.step()
    yield equal("learning rate", schedule.get_last_lr()[0], 0.5**world)


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
