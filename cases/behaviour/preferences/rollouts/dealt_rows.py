"""TRL's functions that deal rows of a generation to batches: split, shuffled, repeated, and scored in one pass.

https://huggingface.co/docs/trl/grpo_trainer: prompts are repeated, generated at once, shuffled and split into batches.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.data.repeated_rows import rounds
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of TRL"
ROWS, PARTS = 6, 3
SAME = 1e-6


def columns() -> dict[str, Any]:
    """Tensors, a list, nothing, and a number of the whole batch."""
    import torch

    whole = torch.arange(ROWS * 4).reshape(ROWS, 4)
    return {
        "absent": None,
        "ids": whole,
        "scores": torch.arange(float(ROWS)),
        "texts": [f"text {number}" for number in range(ROWS)],
        "count": torch.tensor(7.0),
    }


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


@call(GROUP, phase=Phase.FORWARD, requires=("dealt_rows",))
def rows_split_into_batches(_ctx: Context) -> Iterator[Check]:
    """split_tensor_dict deals neighbouring rows to batches, keeps None, and gives each batch a number of the whole."""
    from trl.trainer.utils import split_tensor_dict

    given = columns()
    if "list" not in inspect.getsource(split_tensor_dict).partition("first_tensor =")[2]:
        del given["texts"]  # of versions that split tensors alone
    size = ROWS // PARTS
    found = split_tensor_dict(given, PARTS)
    yield equal("batches", len(found), PARTS)
    for number, batch in enumerate(found):
        place = slice(number * size, (number + 1) * size)
        for name, value in given.items():
            wanted = plain(value) if name in {"absent", "count"} else plain(value[place])
            yield equal(f"{name} of batch {number}", str(plain(batch[name])), str(wanted))


@call(GROUP, phase=Phase.FORWARD, requires=("shuffled_rows",))
def rows_shuffled_together(_ctx: Context) -> Iterator[Check]:
    """shuffle_sequence_dict permutes the rows of all columns alike, by torch's generator; None and numbers stay."""
    import torch
    from trl.trainer.utils import shuffle_sequence_dict

    for seed in (0, 1):
        given = columns()
        torch.manual_seed(seed)
        found = shuffle_sequence_dict(given)
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed)).tolist()
        for name, value in given.items():
            rows = plain(value)
            wanted = rows if name in {"absent", "count"} else [rows[place] for place in order]
            yield equal(f"{name}, shuffled by seed {seed}", str(plain(found[name])), str(wanted))
        yield equal(f"rows that moved, seed {seed}", order != list(range(ROWS)), bound=True)


@call(GROUP, phase=Phase.FORWARD, requires=("repeated_streams",))
def streams_of_repeated_prompts(_ctx: Context) -> Iterator[Check]:
    """repeat_iterable_dataset gives the rows of a stream in the order of RepeatSampler: batches, in rounds."""
    from datasets import IterableDataset
    from trl.trainer.utils import repeat_iterable_dataset

    for count, often, batch, again in ((7, 2, 3, 4), (8, 3, 2, 1), (5, 1, 1, 2), (6, 2, 6, 1)):
        stream = IterableDataset.from_generator(lambda count=count: ({"n": each, "t": [each]} for each in range(count)))
        found = list(repeat_iterable_dataset(stream, often, batch, again))
        wanted = rounds(list(range(count)), often, batch, again)
        title = f"{count} rows, {often} times in batches of {batch}, {again} rounds"
        yield equal(f"rows, {title}", str([row["n"] for row in found]), str(wanted))
        yield equal(f"lists of rows, {title}", str([row["t"][0] for row in found]), str(wanted))


@call("Tensors of TRL", phase=Phase.BACKWARD, requires=("scores_and_entropies",))
def scores_and_entropies(_ctx: Context) -> Iterator[Check]:
    """selective_log_softmax_and_entropy gives log p, entropies and gradients at a temperature, and 0 for masks."""
    import torch
    from trl.trainer.utils import selective_log_softmax_and_entropy

    logits = torch.randn(2, 5, 11, generator=torch.Generator().manual_seed(3))
    index = torch.arange(10).reshape(2, 5)
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1]])
    for heat in (1.0, 0.6):
        for shown in (None, mask):
            for trained in (True, False):
                given, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
                found = selective_log_softmax_and_entropy(
                    given, index, entropy_requires_grad=trained, temperature=heat, row_mask=shown
                )
                chances = (exact / heat).log_softmax(-1)
                kept = torch.ones_like(index) if shown is None else shown
                wanted = (
                    chances.gather(-1, index[..., None])[..., 0] * kept,
                    -(chances.exp() * chances).sum(-1) * kept,
                )
                title = f"temperature {heat}, masked={shown is not None}, trained={trained}"
                for name, one, other in zip(("log p", "entropies"), found, wanted, strict=True):
                    yield at_most(f"{name} off, {title}", float((one - other).abs().max()), SAME * 10)
                yield equal(f"entropies with a gradient, {title}", found[1].requires_grad, trained)
                (found[0].sum() + (0.5 * found[1].sum() if trained else 0)).backward()
                (wanted[0].sum() + (0.5 * wanted[1].sum() if trained else 0)).backward()
                off = float((given.grad - exact.grad).abs().max())
                yield at_most(f"gradients off, {title}", off, SAME * 10)
