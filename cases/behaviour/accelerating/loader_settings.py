"""What prepare_data_loader makes of a loader: devices, epochs, samplers of a script, streams, and sizes of batches.

Ranks are named by num_processes and process_index, so that one process sees the rows of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating import states
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.parallel import clipping
from cases.behaviour.trainers.stock_trainer import gathered
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of ranks"
ROWS, BATCH, RANKS = 11, 4, 2


def rows(count: int = ROWS) -> Any:
    import torch

    return torch.arange(count)


def stream(count: int = ROWS) -> Any:
    import torch

    class EpochStream(torch.utils.data.IterableDataset):  # type: ignore[misc]
        epochs: list[int]

        def __iter__(self) -> Any:
            return iter(rows(count))

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    made = EpochStream()
    made.epochs = []
    return made


def counted() -> Any:
    """A data set with random access that knows its epoch."""
    import torch

    class Counted(torch.utils.data.Dataset):  # type: ignore[misc]
        epochs: list[int]

        def __len__(self) -> int:
            return ROWS

        def __getitem__(self, number: int) -> int:
            return number

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    made = Counted()
    made.epochs = []
    return made


class StoredBatches:
    """A batch sampler that hands out the same lists in every epoch, as samplers of buckets do."""

    def __init__(self, batches: list[list[int]], size: int | None = None) -> None:
        self.batches = batches
        self.drop_last = False
        if size is not None:
            self.batch_size = size

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Any:
        return iter(self.batches)


def read(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


@call(GROUP, phase=Phase.LOAD)
def loaders_move_batches(ctx: Context) -> Iterator[Check]:
    """A prepared loader moves its batches to the device, unless put_on_device or device_placement is off.

    The device without memory shows it on every machine.
    """
    import torch
    from accelerate import PartialState
    from accelerate.data_loader import prepare_data_loader

    nested = [{"ids": row, "more": [row.float()]} for row in rows()]
    for kind, data in (("rows", nested), ("a stream", stream())):
        for dispatched in (False, True):
            states.accelerator(ctx)
            PartialState().device = torch.device("meta")  # where a loader sends what it reads for all ranks
            loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
            more = {"device": torch.device("meta"), "put_on_device": True, "dispatch_batches": dispatched}
            made = prepare_data_loader(loader, num_processes=1, process_index=0, **more)
            title = f"{kind}, dispatch_batches={dispatched}"
            batches = list(made)
            tensors = [each for batch in batches for each in _tensors(batch)]
            yield equal(f"batches, {title}", len(batches), 3)
            yield equal(f"devices, {title}", str({each.device.type for each in tensors}), "{'meta'}")
            yield equal(f"rows of the last batch, {title}", len(tensors[-1]), ROWS % BATCH)
    states.accelerator(ctx)
    loader = torch.utils.data.DataLoader(rows(), batch_size=BATCH)
    left = prepare_data_loader(loader, device=torch.device("meta"), num_processes=1, process_index=0)
    yield equal("devices, left where they are", str({each.device.type for each in left}), "{'cpu'}")
    for placed in (True, False):
        made = states.accelerator(ctx, device_placement=placed)
        made.state.device = torch.device("meta")
        for name, prepared in (
            ("the Accelerator", made.prepare(loader)),
            ("the call", made.prepare_data_loader(loader, device_placement=placed)),
        ):
            devices = str({each.device.type for each in prepared})
            yield equal(f"devices, device_placement={placed} of {name}", devices, str({"meta" if placed else "cpu"}))


def _tensors(batch: Any) -> list[Any]:
    import torch

    if isinstance(batch, torch.Tensor):
        return [batch]
    return [batch["ids"], batch["more"][0]]


@call(GROUP, phase=Phase.LOAD)
def loaders_tell_epochs(ctx: Context) -> Iterator[Check]:
    """set_epoch of a prepared loader, and each new epoch, reach a data set and a sampler that know epochs."""
    import torch
    from accelerate.data_loader import prepare_data_loader

    states.accelerator(ctx)
    for kind, data in (("rows", counted()), ("a stream", stream())):
        for dispatched in (False, True):
            data.epochs.clear()
            loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
            more = {"put_on_device": True, "dispatch_batches": dispatched}
            made = prepare_data_loader(loader, num_processes=1, process_index=0, **more)
            made.set_epoch(3)
            told = list(dict.fromkeys(data.epochs))
            for _ in range(2):
                list(made)
            title = f"{kind}, dispatch_batches={dispatched}"
            yield equal(f"epoch of set_epoch, {title}", str(told), "[3]")
            yield equal(f"epochs in order, {title}", str(list(dict.fromkeys(data.epochs))), "[3, 4]")
            yield equal(f"epochs counted, {title}", made.iteration, 5)


@call(GROUP, phase=Phase.LOAD)
def loaders_of_own_batches(ctx: Context) -> Iterator[Check]:
    """Batch samplers of a script keep their batches: in one process, of several sizes, and stored for every epoch.

    split_batches needs a size that the ranks divide.
    """
    import torch
    from accelerate.data_loader import BatchSamplerShard, prepare_data_loader

    states.accelerator(ctx)
    own = [[0, 1, 2], [3, 4], [5, 6, 7, 8]]
    loader = torch.utils.data.DataLoader(rows(), batch_sampler=StoredBatches([list(each) for each in own]))
    made = prepare_data_loader(loader, num_processes=1, process_index=0)
    for epoch in range(2):
        yield equal(f"batches of one process, epoch {epoch}", str(read(made)), str(own))
    for rank in range(RANKS):
        uneven = prepare_data_loader(loader, num_processes=RANKS, process_index=rank, even_batches=False)
        yield equal(f"batches of several sizes, rank {rank}", str(read(uneven)), str(own[rank::RANKS]))
    full = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    wanted = {0: [[0, 1], [4, 5], [8, 9]], 1: [[2, 3], [6, 7], [10, 0]]}
    for rank in range(RANKS):
        stored = StoredBatches([list(each) for each in full], BATCH)
        shard = BatchSamplerShard(stored, RANKS, rank, split_batches=True)
        for epoch in range(2):
            yield equal(f"parts of stored batches, rank {rank}, epoch {epoch}", str(list(shard)), str(wanted[rank]))
        yield equal(f"stored batches, rank {rank}", str(stored.batches), str(full))
    odd = torch.utils.data.DataLoader(rows(), batch_size=3)
    kept = prepare_data_loader(odd, num_processes=RANKS, process_index=0)
    yield equal("odd batches, not split", str(read(kept)), "[[0, 1, 2], [6, 7, 8]]")
    refused = refusal(prepare_data_loader, odd, num_processes=RANKS, process_index=0, split_batches=True)
    yield equal("refused, odd batches to split", refused, "ValueError")
    refused = refusal(prepare_data_loader, loader, num_processes=RANKS, process_index=0, split_batches=True)
    yield equal("refused, no size to split", refused, "ValueError")
    refused = refusal(prepare_data_loader, odd, dispatch_batches=True, put_on_device=False)
    yield equal("refused, dispatched but left", refused, "ValueError")


@call(GROUP, phase=Phase.LOAD)
def loaders_share_streams(ctx: Context) -> Iterator[Check]:
    """Each rank of a stream gets batches in turn, or with split_batches its part of each; first rows fill the end."""
    import torch
    from accelerate.data_loader import prepare_data_loader

    states.accelerator(ctx)
    for split in (False, True):
        for drop in (False, True):
            size = BATCH if split else BATCH // RANKS  # of a rank, both times two
            whole = [list(range(begin, begin + BATCH)) for begin in range(0, ROWS, BATCH)]
            whole[-1] = [number if number < ROWS else number - ROWS for number in whole[-1]]
            whole = whole[: len(whole) - drop]
            for rank in range(RANKS):
                loader = torch.utils.data.DataLoader(stream(), batch_size=size, drop_last=drop)
                made = prepare_data_loader(
                    loader,
                    num_processes=RANKS,
                    process_index=rank,
                    split_batches=split,
                    dispatch_batches=False,
                    put_on_device=False,
                )
                part = BATCH // RANKS
                wanted = [each[rank * part : (rank + 1) * part] for each in whole]
                yield equal(f"rows, split={split}, drop_last={drop}, rank {rank}", str(read(made)), str(wanted))


@call(GROUP, phase=Phase.LOAD, ranks=2)
def loaders_leave_ranks_alike(ctx: Context) -> Iterator[Check]:
    """Ranks that were seeded alike still draw the same numbers after an epoch of a loader, whoever reads for whom.

    Between them they read each row of a stream or a data set.
    """
    import torch
    from accelerate import DataLoaderConfiguration
    from accelerate.utils import set_seed

    for kind, data in (("rows", rows(8)), ("a stream", stream(8))):
        for dispatched in (False, True):
            settings = DataLoaderConfiguration(dispatch_batches=dispatched)
            made = clipping.accelerator(ctx, dataloader_config=settings)
            loader = made.prepare(torch.utils.data.DataLoader(data, batch_size=2))
            set_seed(3)
            own = [number for batch in loader for number in batch.tolist()]
            drawn = gathered(ctx, torch.rand(3).tolist())
            every = sorted(number for each in gathered(ctx, own) for number in each)
            title = f"{kind}, dispatch_batches={dispatched}"
            yield equal(f"numbers of both ranks, {title}", str(drawn[0]), str(drawn[1]))
            yield equal(f"rows of both ranks, {title}", str(every), str([*range(8)]))
