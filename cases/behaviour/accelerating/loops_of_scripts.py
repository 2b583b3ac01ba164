"""What loops of scripts hand to accelerate beside models: other objects, loaders without an Accelerator, seeds.

https://huggingface.co/docs/accelerate/package_reference/accelerator and .../package_reference/torch_wrappers
"""

from __future__ import annotations

import itertools
import types
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.accelerating.nested_tensors import refusal
from cases.behaviour.accelerating.states import forget_states
from cases.behaviour.parallel.offloading import alone
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cases.apply.context import Context

GROUP = "accelerate: loops"
ROWS, BATCH = 13, 3
WRAPPED = "AcceleratedOptimizer True"  # a prepared optimiser, and the same object beside it


@call(GROUP, phase=Phase.LOAD)
def accelerate_leaves_other_objects(ctx: Context) -> Iterator[Check]:
    """Objects that prepare does not know come back as they are: None, numbers, texts and containers.

    One object comes back alone, several as a tuple in their order.
    """
    import torch

    made = alone(ctx)
    model = torch.nn.Linear(2, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    own = types.SimpleNamespace(rows=3)  # with attributes
    others: list[Any] = [None, 3, 0.5, "text", [1, 2], {"a": 1}, (1,), {2}, torch.ones(2), len, object(), True, own]
    for other in others:
        title = f"{type(other).__name__}"
        kept = vars(other).copy() if hasattr(other, "__dict__") else {}
        yield equal(f"the same object alone, {title}", made.prepare(other) is other, bound=True)
        first, again, last = made.prepare(other, model, other)
        yield equal(f"the same objects around a model, {title}", first is other and last is other, bound=True)
        yield equal(f"the model between them, {title}", made.unwrap_model(again) is model, bound=True)
        pair = made.prepare(optimiser, other)
        yield equal(f"optimiser and object, {title}", f"{type(pair[0]).__name__} {pair[1] is other}", WRAPPED)
        if kept:
            yield equal(f"attributes, {title}", str(sorted(vars(other))), str(sorted(kept)))


def rows(loader: Any) -> list[list[int]]:
    return [[int(each) for each in batch] for batch in loader]


def shuffled(**more: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(range(ROWS), batch_size=BATCH, shuffle=True, **more)


@call(GROUP, phase=Phase.LOAD)
def accelerate_shuffles_by_seed(ctx: Context) -> Iterator[Check]:
    """set_seed decides the order of a prepared loader that shuffles, which is the one that torch's own loader has.

    Other seeds and later epochs have other orders, each with every row once; a loader of its own generator follows it.
    """
    import torch
    from accelerate.utils import set_seed

    made = alone(ctx)
    seen = set()
    for seed in (0, 1, 42):
        orders = []
        for loader in (shuffled(), made.prepare(shuffled()), made.prepare(shuffled())):
            set_seed(seed)
            orders.append([rows(loader) for _ in range(3)])
        plain, prepared, again = orders
        yield equal(f"orders of three epochs, seed {seed}", str(prepared), str(plain))
        yield equal(f"orders repeated, seed {seed}", str(again), str(plain))
        seen |= {str(epoch) for epoch in prepared}
        counted = {str(sorted(itertools.chain(*epoch))) for epoch in prepared}
        yield equal(f"rows of an epoch, seed {seed}", str(counted), str({str(list(range(ROWS)))}))
    yield equal("different orders of 3 seeds and epochs", len(seen), 9)
    for seed in (0, 7):
        own = [shuffled(generator=torch.Generator().manual_seed(seed)) for _ in range(2)]
        set_seed(3)
        wanted = [rows(own[0]) for _ in range(2)]
        set_seed(3)
        prepared = made.prepare(own[1])
        yield equal(f"orders of a generator, {seed}", str([rows(prepared) for _ in range(2)]), str(wanted))


def stream() -> Any:
    from torch.utils.data import IterableDataset

    class Numbers(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Any:
            return iter(range(ROWS))

    return Numbers()


KINDS: Mapping[str, Callable[[], Any]] = {"rows": lambda: range(ROWS), "a stream": stream}


def batches(*, drop: bool) -> list[list[int]]:
    found = [[*range(at, min(at + BATCH, ROWS))] for at in range(0, ROWS, BATCH)]
    return [each for each in found if len(each) == BATCH or not drop]


def skipped_rows(title: str, data: Any, number: int, *, drop: bool) -> Iterator[Check]:
    """Skip batches of a loader that no Accelerator prepared, and compare what is left and what the state says."""
    from accelerate.data_loader import prepare_data_loader, skip_first_batches
    from accelerate.state import GradientState, PartialState
    from torch.utils.data import DataLoader

    wanted = batches(drop=drop)[number:]
    forget_states()
    PartialState(cpu=True)  # a script has no more
    plain = DataLoader(data, batch_size=BATCH, drop_last=drop)
    found = rows(skip_first_batches(plain, number))
    yield equal(f"rows without preparing, {title}", str(found), str(wanted))
    loader = prepare_data_loader(DataLoader(data, batch_size=BATCH, drop_last=drop), put_on_device=True)
    yield equal(f"rows, {title}", str(rows(skip_first_batches(loader, number))), str(wanted))
    yield equal(f"rows of the whole loader afterwards, {title}", str(rows(loader)), str(batches(drop=drop)))
    state = GradientState()
    ends = [bool(state.end_of_dataloader) for _ in skip_first_batches(loader, number)]
    last = [at == len(wanted) - 1 for at in range(len(wanted))]
    yield equal(f"batches that are the last, {title}", str(ends), str(last))
    yield equal(f"within a loader afterwards, {title}", bool(state.in_dataloader), bound=False)


@call(GROUP, phase=Phase.LOAD)
def loaders_without_accelerator(_ctx: Context) -> Iterator[Check]:
    """prepare_data_loader and skip_first_batches work without an Accelerator, on data sets and streams alike.

    The state of gradients says whether the loop is within a loader, and when its last batch comes.
    """
    for drop, (title, data) in itertools.product((False, True), KINDS.items()):
        for number in range(len(batches(drop=drop))):
            yield from skipped_rows(f"{title}, drop_last={drop}, {number} skipped", data(), number, drop=drop)
    yield from dispatched_by_default()


def dispatched_by_default() -> Iterator[Check]:
    """One process reads for all by default if the data is a stream and batches are put on the device; else never."""
    import torch
    from accelerate.data_loader import DataLoaderDispatcher, prepare_data_loader
    from torch.utils.data import DataLoader

    for (title, data), put, chosen in itertools.product(KINDS.items(), (False, True), (None, False, True)):
        more = {"put_on_device": put, "dispatch_batches": chosen, "device": torch.device("cpu")}
        name = f"{title}, put_on_device={put}, dispatch_batches={chosen}"
        if chosen and not put:
            found = refusal(prepare_data_loader, DataLoader(data(), batch_size=BATCH), **more)
            yield equal(f"refused, {name}", found, "ValueError")
            continue
        loader = prepare_data_loader(DataLoader(data(), batch_size=BATCH), **more)
        wanted = put and title == "a stream" if chosen is None else chosen
        yield equal(f"one process reads for all, {name}", isinstance(loader, DataLoaderDispatcher), wanted)
        yield equal(f"rows, {name}", str(rows(loader)), str(batches(drop=False)))


@call(GROUP, phase=Phase.LOAD)
def skip_whole_epochs(_ctx: Context) -> Iterator[Check]:
    """skip_first_batches of all batches leaves none, as a loop needs that resumes at the end of an epoch."""
    for drop, (title, data) in itertools.product((False, True), KINDS.items()):
        yield from skipped_rows(f"{title}, drop_last={drop}", data(), len(batches(drop=drop)), drop=drop)


def seeded(ctx: Context) -> Any:
    """An Accelerator with the sampler whose order depends on the seed and the epoch alone, as the Trainer has it."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    forget_states()
    return Accelerator(
        cpu=ctx.place.kind == "cpu", dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True)
    )


def of_later_epochs(ctx: Context, skipped: Callable[[Any, Any, int], Any]) -> Iterator[Check]:
    """Skip batches of one of three epochs, and compare what is left of it."""
    from accelerate.utils import set_seed

    made = seeded(ctx)
    set_seed(3)
    whole = made.prepare(shuffled())
    epochs = [rows(whole) for _ in range(3)]
    for epoch in range(3):
        set_seed(3)
        rest = rows(skipped(made, made.prepare(shuffled()), epoch))
        yield equal(f"rest of epoch {epoch}", str(rest), str(epochs[epoch][1:]))


@call(GROUP, phase=Phase.RESUME)
def skip_after_set_epoch(ctx: Context) -> Iterator[Check]:
    """skip_first_batches leaves the rest of the epoch that set_epoch chose, as the Trainer of 4.x resumes."""

    def skipped(made: Any, loader: Any, epoch: int) -> Any:
        loader.set_epoch(epoch)
        return made.skip_first_batches(loader, 1)

    yield from of_later_epochs(ctx, skipped)


@call(GROUP, phase=Phase.RESUME)
def set_epoch_after_skip(ctx: Context) -> Iterator[Check]:
    """set_epoch chooses the order of a loader that skip_first_batches made, as the Trainer of 5.x resumes."""

    def skipped(made: Any, loader: Any, epoch: int) -> Any:
        rest = made.skip_first_batches(loader, 1)
        rest.set_epoch(epoch)
        return rest

    yield from of_later_epochs(ctx, skipped)


@call(GROUP, phase=Phase.LOAD)
def loaders_of_batch_samplers(ctx: Context) -> Iterator[Check]:
    """A loader whose sampler gives batches is prepared with these batches, for one process and for several.

    https://docs.pytorch.org/docs/stable/data.html#disable-automatic-batching: sampler=BatchSampler(...) with
    batch_size=None loads each batch at once.
    """
    import torch
    from accelerate.data_loader import prepare_data_loader
    from torch.utils.data import BatchSampler, DataLoader

    alone(ctx)
    full = batches(drop=True)
    for ranks in (2, 1):
        for rank in range(ranks):
            sampler = BatchSampler(range(ROWS - 1), BATCH, drop_last=False)
            loader = DataLoader(torch.arange(ROWS), sampler=sampler, batch_size=None)
            made = prepare_data_loader(loader, num_processes=ranks, process_index=rank)
            yield equal(f"batches, {ranks} processes, rank {rank}", str(rows(made)), str(full[rank::ranks]))
