<<<<<<< HEAD
"""The order in which trainers visit rows: permutations, seeds, and the rows of each rank."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import front_ends
from cases.behaviour import stock_trainer
from cases.space.verdict import Check, Phase, equal
=======
"""Sampling: the frequencies of thousands of drawn tokens against the exact distribution of the reference network."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour import decoding, generating
from cases.model import tiny
from cases.space.verdict import Phase, at_most, equal
>>>>>>> 4abcbeb (Compare generation with decoding by its definition, on the reference network)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
<<<<<<< HEAD

GROUP = "Data order"
ROWS = 11


<<<<<<< HEAD
def order(ctx: Context, **more: Any) -> list[int]:
    """The rows that this rank trains on in two epochs."""
    trainer = stock_trainer.trainer(ctx, ROWS, **more)
    record = stock_trainer.observed(trainer)
    trainer.train()
    return record.order
=======
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
>>>>>>> a503ff8 (Register the names of checks of parallel training; make lint and types green)


def every_row(rows: list[int], count: int = ROWS) -> str:
    """The rows that do not occur exactly once, or none."""
    return ", ".join(str(number) for number in range(count) if rows.count(number) != 1) or "none"


@call(GROUP, phase=Phase.FORWARD)
def trainer_shuffles(ctx: Context) -> Iterator[Check]:
    """Each epoch of the Trainer is a new permutation of the rows; the seed alone determines it."""
    found = order(ctx)
    first, second = found[:ROWS], found[ROWS:]
    yield equal("rows that the first epoch has not once", every_row(first), "none")
    yield equal("rows that the second epoch has not once", every_row(second), "none")
    yield equal("epochs in order", int(first == sorted(first)) + int(second == sorted(second)), 0)
    yield equal("epochs with the same order", int(first == second), 0)
    yield equal("order with the same seed", str(order(ctx)), str(found))
    yield equal("another seed with the same order", int(order(ctx, seed=8) == found), 0)


@call(GROUP, phase=Phase.FORWARD)
def trainer_data_seed(ctx: Context) -> Iterator[Check]:
    """data_seed determines the order of the rows, whatever the seed is, as documented.

<<<<<<< HEAD
    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.data_seed
=======

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
>>>>>>> a503ff8 (Register the names of checks of parallel training; make lint and types green)
    """
    found = order(ctx, seed=1, data_seed=5)
    yield equal("order with the same data_seed", str(order(ctx, seed=2, data_seed=5)), str(found))
    yield equal("another data_seed with the same order", int(order(ctx, seed=1, data_seed=6) == found), 0)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def trainer_shuffles_two_ranks(ctx: Context) -> Iterator[Check]:
    """In an epoch, two ranks see disjoint rows that together are all, but for one row repeated to fill a batch."""
    found = order(ctx)
    mine = [found[: len(found) // 2], found[len(found) // 2 :]]
    epochs = [
        [number for rank in ranks for number in rank] for ranks in zip(*stock_trainer.gathered(ctx, mine), strict=True)
    ]
    for name, rows in zip(("first", "second"), epochs, strict=True):
        yield equal(f"rows of the {name} epoch", str(sorted(set(rows))), str(list(range(ROWS))))
        yield equal(f"rows repeated in the {name} epoch", len(rows) - ROWS, 1)
    yield equal("epochs with the same order", int(epochs[0] == epochs[1]), 0)


def loaded(ctx: Context, *, device_specific: bool = False, **chosen: Any) -> list[list[int]]:
    """The rows that this rank's loader gives in each epoch of a plain loop with accelerate."""
    import torch
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration, set_seed

    os.environ.update(front_ends.launched(ctx.place))
    accelerator = Accelerator(cpu=ctx.place.kind == "cpu", dataloader_config=DataLoaderConfiguration(**chosen))
    set_seed(3, device_specific=device_specific)
    loader = accelerator.prepare(torch.utils.data.DataLoader(list(range(ROWS)), batch_size=2, shuffle=True))
    return [[int(number) for batch in loader for number in batch] for _ in range(2)]


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_shuffles(ctx: Context) -> Iterator[Check]:
    """A loader of accelerate gives two ranks disjoint rows in a new order each epoch, filled up with first rows."""
    for epoch in zip(*stock_trainer.gathered(ctx, loaded(ctx)), strict=True):
        rows = [number for rank in epoch for number in rank]
        yield equal("rows of an epoch", str(sorted(set(rows))), str(list(range(ROWS))))
        yield equal("rows repeated in an epoch", len(rows) - ROWS, 1)
    first, second = loaded(ctx)
    yield equal("epochs with the same order", int(first == second), 0)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_uneven(ctx: Context) -> Iterator[Check]:
    """With even_batches=False, accelerate's loader gives each row to one rank, once."""
    for epoch in zip(*stock_trainer.gathered(ctx, loaded(ctx, even_batches=False)), strict=True):
        yield equal("rows that an epoch has not once", every_row([n for rank in epoch for n in rank]), "none")


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_seedable(ctx: Context) -> Iterator[Check]:
    """With use_seedable_sampler=True, the order of the rows depends on the seed and the epoch only."""
    found = loaded(ctx, use_seedable_sampler=True)
    yield equal("order with the same seed", str(loaded(ctx, use_seedable_sampler=True)), str(found))
    yield equal("epochs with the same order", int(found[0] == found[1]), 0)


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_seeded_by_rank(ctx: Context) -> Iterator[Check]:
    """With set_seed(device_specific=True), accelerate's loader still gives two ranks disjoint rows."""
    for epoch in zip(*stock_trainer.gathered(ctx, loaded(ctx, device_specific=True)), strict=True):
        yield equal("rows of an epoch", str(sorted({n for rank in epoch for n in rank})), str(list(range(ROWS))))


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def accelerate_seedable_by_rank(ctx: Context) -> Iterator[Check]:
    """With set_seed(device_specific=True) and a seedable sampler, two ranks still get disjoint rows."""
    found = loaded(ctx, device_specific=True, use_seedable_sampler=True)
    for epoch in zip(*stock_trainer.gathered(ctx, found), strict=True):
        yield equal("rows of an epoch", str(sorted({n for rank in epoch for n in rank})), str(list(range(ROWS))))
=======
    from cases.space.verdict import Check

GROUP = "Generation"
DRAWS, SEED = 8192, 0
TEMPERATURE, NUMBER, MASS, SHARE = 0.5, 12, 0.7, 0.25


def drawn(ctx: Context, prompt: list[int], **arguments: Any) -> list[int]:
    """How often each token was drawn first, in one batch."""
    import torch

    torch.manual_seed(SEED)
    usual = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    model = generating.loaded(ctx, generating.options())
    rows = generating.generated(model, [prompt], max_new_tokens=1, num_return_sequences=DRAWS, **{**usual, **arguments})
    counts: list[int] = torch.bincount(rows[:, -1].cpu(), minlength=tiny.VOCABULARY).tolist()
    return counts


def sampled(ctx: Context, shares: Any, **arguments: Any) -> Iterator[Check]:
    """Compare drawn tokens with the distribution that ``shares`` makes of the reference's scores."""
    prompt = generating.prompts()[0]
    scores = generating.reference(ctx, generating.options()).logits(prompt)[-1].tolist()
    expected, counts = shares(scores), drawn(ctx, prompt, **arguments)
    yield at_most(
        "distance from the distribution",
        decoding.distance(counts, expected),
        decoding.distance_bound(expected, DRAWS),
    )
    outside = sum(count for count, share in zip(counts, expected, strict=True) if share == 0)
    yield equal("draws outside the distribution", outside, 0)
    probable = math.log(len(counts) / decoding.FALSE_ALARM) / DRAWS  # each is never drawn with exp(-share * draws)
    missing = sum(not count for count, share in zip(counts, expected, strict=True) if share >= probable)
    yield equal("probable tokens that were never drawn", missing, 0)


@call(GROUP, phase=Phase.INFER)
def sample_plain(ctx: Context) -> Iterator[Check]:
    """do_sample draws from the softmax of the logits."""
    yield from sampled(ctx, decoding.probabilities)


@call(GROUP, phase=Phase.INFER)
def sample_temperature(ctx: Context) -> Iterator[Check]:
    """The temperature divides the logits before the softmax."""
    yield from sampled(ctx, lambda scores: decoding.probabilities(scores, TEMPERATURE), temperature=TEMPERATURE)


@call(GROUP, phase=Phase.INFER)
def sample_top_k(ctx: Context) -> Iterator[Check]:
    """top_k draws from the most probable tokens alone."""
    yield from sampled(ctx, lambda scores: decoding.top_k(decoding.probabilities(scores), NUMBER), top_k=NUMBER)


@call(GROUP, phase=Phase.INFER)
def sample_top_p(ctx: Context) -> Iterator[Check]:
    """top_p draws from the smallest set of tokens that has at least this probability."""
    yield from sampled(ctx, lambda scores: decoding.top_p(decoding.probabilities(scores), MASS), top_p=MASS)


@call(GROUP, phase=Phase.INFER, requires=("min_p",))
def sample_min_p(ctx: Context) -> Iterator[Check]:
    """min_p draws from tokens with at least this share of the largest probability."""
    yield from sampled(ctx, lambda scores: decoding.min_p(decoding.probabilities(scores), SHARE), min_p=SHARE)


@call(GROUP, phase=Phase.INFER)
def sample_all_together(ctx: Context) -> Iterator[Check]:
    """The temperature acts first, then top_k, then top_p on what top_k left."""

    def shares(scores: list[float]) -> list[float]:
        return decoding.top_p(decoding.top_k(decoding.probabilities(scores, TEMPERATURE), NUMBER), MASS)

    yield from sampled(ctx, shares, temperature=TEMPERATURE, top_k=NUMBER, top_p=MASS)
>>>>>>> 4abcbeb (Compare generation with decoding by its definition, on the reference network)
