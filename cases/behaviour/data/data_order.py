"""The rows that a model sees through the Trainer: every row of every epoch, also in the last incomplete batch.

https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.api.trainers import in_order
from cases.apply import front_ends
from cases.behaviour.data import seen
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Data order"
SAME = 1e-5  # relative: one step of gradient descent in float32
ROWS = 10


def trained(ctx: Context, *, rows: Any = None, ordered: bool = True, **more: Any) -> list[list[int]]:
    """Train one epoch and return the numbers of the rows of each batch."""
    from transformers import Trainer

    given = {"max_steps": -1, "num_train_epochs": 1, "per_device_train_batch_size": 4, **more}
    model = ingredients.base(ctx)
    found = seen.batches(model)
    trainer = (in_order(Trainer) if ordered else Trainer)(
        model=model,
        args=ingredients.arguments(ctx, **given),
        train_dataset=seen.numbered_rows(ROWS) if rows is None else rows,
    )
    trainer.train()
    return seen.row_numbers(found)


@call(GROUP, phase=Phase.FORWARD)
def trainer_last_batch(ctx: Context) -> Iterator[Check]:
    """The Trainer trains on a last batch that is not full, and drops it with dataloader_drop_last=True."""
    whole = [[0, 1, 2, 3], [4, 5, 6, 7]]
    yield equal("rows of each batch", str(trained(ctx)), str([*whole, [8, 9]]))
    yield equal("rows with drop_last", str(trained(ctx, dataloader_drop_last=True)), str(whole))


def stream(number: int) -> Any:
    """Numbered rows that can only be iterated over."""
    import torch

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]  # as the stack, typed as Any
        def __iter__(self) -> Iterator[Any]:
            return iter(seen.numbered_rows(number))

    return Stream()


@call(GROUP, phase=Phase.FORWARD)
def trainer_iterates(ctx: Context) -> Iterator[Check]:
    """The Trainer takes the rows of an IterableDataset in order, and begins again until max_steps."""
    found = trained(ctx, rows=stream(ROWS), max_steps=4)
    yield equal("rows of each batch", str(found), str([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]))


@call(GROUP, phase=Phase.OPTIMIZER)
def trainer_last_accumulation(ctx: Context) -> Iterator[Check]:
    """The last update of an epoch with fewer micro-batches than accumulate is the mean over the tokens it has.

    Since transformers 4.46 losses are divided by the tokens of the whole step
    (https://huggingface.co/blog/gradient_accumulation); earlier versions divide by the number of micro-batches of a
    full step, so that the last update is too small.
    """
    import torch
    from transformers import Trainer

    model, rows = ingredients.base(ctx), seen.numbered_rows(6)
    given = {"max_steps": -1, "num_train_epochs": 1, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    in_order(Trainer)(model=model, args=ingredients.arguments(ctx, **given), train_dataset=rows).train()
    plain = ingredients.base(ctx)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    for batch in (rows[:4], rows[4:]):
        ids = torch.stack([row["input_ids"] for row in batch]).to(ctx.place.device)
        logits = plain(input_ids=ids).logits[:, :-1].flatten(0, 1)
        torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()
    weights = plain.state_dict()
    apart = [ingredients.largest_difference(weight, weights[name]) for name, weight in model.state_dict().items()]
    yield at_most("weight off", max(apart), SAME)


def on_ranks(ctx: Context, found: list[list[int]]) -> list[list[list[int]]]:
    """The batches of each rank. Collective."""
    import torch.distributed as dist

    every: list[Any] = [None] * ctx.place.world_size
    dist.all_gather_object(every, found)
    return every


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def trainer_rows_of_ranks(ctx: Context) -> Iterator[Check]:
    """Two ranks get batches in turn; the first rows fill up the last batches, so that ranks take as many steps.

    accelerate's ``even_batches`` (https://huggingface.co/docs/accelerate/package_reference/accelerator).
    """
    os.environ.update(front_ends.launched(ctx.place))
    found = on_ranks(ctx, trained(ctx, per_device_train_batch_size=2))
    yield equal("rows of rank 0", str(found[0]), str([[0, 1], [4, 5], [8, 9]]))
    yield equal("rows of rank 1", str(found[1]), str([[2, 3], [6, 7], [0, 1]]))


@call(GROUP, phase=Phase.FORWARD, ranks=2)
def trainer_iterates_on_ranks(ctx: Context) -> Iterator[Check]:
    """Two ranks share the rows of an IterableDataset: none sees what the other sees."""
    os.environ.update(front_ends.launched(ctx.place))
    found = on_ranks(ctx, trained(ctx, rows=stream(8), max_steps=2, per_device_train_batch_size=2))
    yield equal("rows of rank 0", str(found[0]), str([[0, 1], [4, 5]]))
    yield equal("rows of rank 1", str(found[1]), str([[2, 3], [6, 7]]))
