"""The rows of a training step as users have them: whole, padded on either side, or with prompts that are not learned.

Rows differ in length and in learned tokens, so the ranks and micro-batches of a step have different numbers of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.model import architectures, tiny

if TYPE_CHECKING:
    from cases.space.options import Options

IGNORED = -100  # the label of a token that is not learned, as in torch's cross_entropy
LENGTHS = (16, 11, 13, 6)  # of the rows of a padded batch
PROMPTS = (2, 9, 5, 12)  # tokens of each row that are not learned, with data=prompt_masked


@dataclass(frozen=True)
class Rows:
    """Token ids and labels, int64 (rows, length); ``real`` is bool (rows, length), None without padding."""

    ids: Any
    labels: Any
    real: Any = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a forward pass in training."""
        mask = {} if self.real is None else {"attention_mask": self.real.long()}
        return {"input_ids": self.ids, **mask, "labels": self.labels}

    def part(self, begin: int, end: int) -> Rows:
        return Rows(*(None if each is None else each[begin:end] for each in (self.ids, self.labels, self.real)))

    def parts(self, number: int) -> list[Rows]:
        """Equal parts, in order."""
        size = len(self.ids) // number
        return [self.part(at * size, (at + 1) * size) for at in range(number)]

    def to(self, device: Any) -> Rows:
        return Rows(*(None if each is None else each.to(device) for each in (self.ids, self.labels, self.real)))


def rows(step: int, options: Options) -> Rows:
    """The global batch of a step."""
    import torch

    ids = tiny.batch(step, architectures.vocabulary(options))
    place = torch.arange(ids.shape[1])
    if options.data == "prompt_masked":
        learned = place >= torch.tensor(PROMPTS)[:, None]
        return Rows(ids, ids.masked_fill(~learned, IGNORED))
    if options.data == "plain":
        return Rows(ids, ids)
    padding = ids.shape[1] - torch.tensor(LENGTHS)[:, None]
    is_left = options.data == "padded_left"
    real = place >= padding if is_left else place < ids.shape[1] - padding
    # On the left, the first real token would be predicted by padding, whose output means nothing.
    learned = place > padding if is_left else real
    return Rows(ids.masked_fill(~real, tiny.PADDING), ids.masked_fill(~learned, IGNORED), real)


def shard(step: int, rank: int, options: Options) -> Rows:
    """The rows that a rank trains on; no two ranks see the same row."""
    return rows(step, options).parts(options.world_size)[rank]
