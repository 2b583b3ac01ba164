"""What a model sees in training, and the loss that the reference computes for it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from cases.api import ingredients
from cases.model import architectures, disk
from cases.reference import models, twin
from cases.reference.network import Batch, Network
from cases.space.verdict import Check, equal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cases.apply.context import Context

FIRST, WIDTH = 10, 4  # the id of the first row's first word; the words of a row


def numbered_rows(number: int) -> list[dict[str, Any]]:
    """Rows that their first token tells apart; the first label of each is masked, as nothing predicts it."""
    import torch

    ids = [torch.tensor([FIRST + row, *range(FIRST + row + 50, FIRST + row + 50 + WIDTH - 1)]) for row in range(number)]
    return [{"input_ids": row, "labels": torch.cat([torch.tensor([ingredients.IGNORED]), row[1:]])} for row in ids]


def batches(model: Any) -> list[dict[str, Any]]:
    """A list that gets the arguments of each forward pass in training mode from now on."""
    found: list[dict[str, Any]] = []

    def note(module: Any, _inputs: Any, named: dict[str, Any]) -> None:
        if module.training:
            found.append({name: value for name, value in named.items() if hasattr(value, "shape")})

    model.register_forward_pre_hook(note, with_kwargs=True)
    return found


def row_numbers(seen: Iterable[dict[str, Any]]) -> list[list[int]]:
    """The numbers of the rows in each batch of ``numbered_rows``."""
    return [[int(first) - FIRST for first in batch["input_ids"][:, 0]] for batch in seen]


def reference(ctx: Context) -> Network:
    """The tiny model as the reference computes it, in float64."""
    folder = architectures.plain_checkpoint(ctx.cache)
    return Network(disk.config(folder), {name: tensor.double() for name, tensor in disk.tensors(folder).items()})


def documents_loss(ctx: Context, documents: Sequence[tuple[Sequence[int], Sequence[int]]]) -> float:
    """The mean loss over the learned tokens of documents that do not see each other: ids and labels of each."""
    import torch

    network, total, learned = reference(ctx), 0.0, 0
    for ids, labels in documents:
        wanted = torch.tensor([labels[1:]])
        number = int((wanted != ingredients.IGNORED).sum())
        if number:
            found = models.logits(network, Batch(ids=torch.tensor([ids])))
            total, learned = total + number * float(twin.cross_entropy(found, wanted)), learned + number
    return total / learned


def joined(rows: Iterable[Iterable[int]]) -> list[int]:
    """All rows as one."""
    return list(chain.from_iterable(rows))


def rows_of(tensor: Any) -> str:
    """A batch as text, to compare it with rows by hand."""
    return str([[int(value) for value in row] for row in tensor])


def same_rows(name: str, found: Any, expected: Sequence[Sequence[int]]) -> Check:
    return equal(name, rows_of(found), rows_of(expected))


def first_loss(trainer: Any) -> float:
    """The loss of the first step as the trainer logs it."""
    return float(next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry))
