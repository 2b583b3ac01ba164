"""The token sequences of a batch of TRL's trainers, which versions and trainers store under many names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api.ingredients import IGNORED

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Sequence:
    """Token ids without padding, and those that are learned."""

    ids: tuple[int, ...]
    learned: tuple[int, ...]

    def __str__(self) -> str:
        return f"{list(self.ids)}, learned {list(self.learned)}"


def sequences(trainer: Any) -> list[Sequence]:
    """The sequences of the first batch: of pairs, the chosen ones before the rejected ones."""
    return list(of_batch(next(iter(trainer.get_train_dataloader()))))


def of_batch(batch: Any) -> Iterator[Sequence]:
    if "completion_mask" in batch:
        yield from marked(batch["input_ids"], batch["attention_mask"], batch["completion_mask"])
    elif "chosen_labels" in batch or "completion_labels" in batch:
        for role in ("chosen", "rejected") if "chosen_labels" in batch else ("completion",):
            labels = batch[f"{role}_labels"]
            yield from marked(batch[f"{role}_input_ids"], batch[f"{role}_attention_mask"], labels != IGNORED)
    elif "chosen_input_ids" in batch:
        for role in ("chosen", "rejected"):
            prompts = plain(batch["prompt_input_ids"], batch["prompt_attention_mask"])
            answers = plain(batch[f"{role}_input_ids"], batch[f"{role}_attention_mask"])
            yield from (Sequence((*one, *other), other) for one, other in zip(prompts, answers, strict=True))
    elif "input_ids_chosen" in batch:
        for role in ("chosen", "rejected"):
            ids = plain(batch[f"input_ids_{role}"], batch[f"attention_mask_{role}"])
            yield from (Sequence(each, ()) for each in ids)
    else:
        labels = batch.get("labels")
        mask = batch.get("attention_mask", labels != IGNORED)
        learned = mask * 0 if labels is None else labels != IGNORED
        yield from marked(batch["input_ids"], mask, learned)


def plain(ids: Any, mask: Any) -> list[tuple[int, ...]]:
    """The rows without padding."""
    return [tuple(row[kept.bool()].tolist()) for row, kept in zip(ids, mask, strict=True)]


def marked(ids: Any, mask: Any, learned: Any) -> Iterator[Sequence]:
    for row, kept, counted in zip(ids, mask, learned, strict=True):
        yield Sequence(tuple(row[kept.bool()].tolist()), tuple(row[(counted * kept).bool()].tolist()))
