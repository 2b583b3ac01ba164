"""The rows of a training step as users have them: whole, padded, long, packed, or with prompts that are not learned.

Rows differ in length and in learned tokens, so the ranks and micro-batches of a step have different numbers of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.model import architectures, tiny
from cases.space.options import GLOBAL_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.space.options import Options

IGNORED = -100  # the label of a token that is not learned, as in torch's cross_entropy
LENGTHS = (16, 11, 13, 6)  # of the rows of a padded batch
PROMPTS = (2, 9, 5, 12)  # tokens of each row that are not learned, with data=prompt_masked
DOCUMENTS = ((7, 9), (5, 3, 8), (11, 1, 4), (4, 12))  # lengths of the documents of each row, with data=packed
MULTIPLE = 8  # of tokens to which the Trainer's collator pads
LONG = 96  # tokens of a row with data=long: beyond the trained length
LONGER = 1040  # the same for YaRN, whose trained length is 512


@dataclass(frozen=True)
class Rows:
    """Token ids and labels, int64 (rows, length).

    ``real`` is bool (rows, length), None without padding. ``positions`` restart with each packed document: int64 (rows,
    length), None if nothing is packed.
    """

    ids: Any
    labels: Any
    real: Any = None
    positions: Any = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a forward pass in training."""
        mask = {} if self.real is None else {"attention_mask": self.real.long()}
        places = {} if self.positions is None else {"position_ids": self.positions}
        return {"input_ids": self.ids, **mask, **places, "labels": self.labels}

    @property
    def documents(self) -> Any:
        """The number of the document of each token: int64 (rows, length); None if nothing is packed."""
        return None if self.positions is None else (self.positions == 0).cumsum(-1)

    def each(self, change: Callable[[Any], Any]) -> Rows:
        """The same rows with their tensors changed."""
        return Rows(
            *(
                None if tensor is None else change(tensor)
                for tensor in (self.ids, self.labels, self.real, self.positions)
            )
        )

    def part(self, begin: int, end: int) -> Rows:
        return self.each(lambda tensor: tensor[begin:end])

    def parts(self, number: int) -> list[Rows]:
        """Equal parts, in order."""
        size = len(self.ids) // number
        return [self.part(at * size, (at + 1) * size) for at in range(number)]

    def to(self, device: Any) -> Rows:
        return self.each(lambda tensor: tensor.to(device))

    def unpadded(self) -> list[dict[str, Any]]:
        """Each row as a data set holds it, before a collator pads it: tensors (length,) by the name of the argument."""
        found = []
        for row in self.parts(len(self.ids)):
            kept = row.real[0] if row.real is not None else slice(None)
            given = {name: values[0][kept] for name, values in row.arguments.items() if name != "attention_mask"}
            found.append(given)
        return found


def length(options: Options) -> int:
    """The tokens of a row."""
    if options.data != "long":
        return tiny.LENGTH
    return LONGER if options.rope_scaling == "yarn" else LONG


def padded_batches(options: Options, rank: int) -> list[bool]:
    """For each micro-batch of a rank's step, whether some row of it is padded; all steps are alike.

    The loop pads all rows to the length of the longest, collators only those of a batch. The ranks of the loop get
    parts of the step's rows, and with the other front ends every so-many-th batch.
    """
    number = options.world_size * options.gradient_accumulation_steps
    at_once = GLOBAL_BATCH // number
    batches = [LENGTHS[at * at_once : (at + 1) * at_once] for at in range(number)]
    width = {"trainer": MULTIPLE, "sft": 1}.get(options.front_end, tiny.LENGTH)
    each = options.gradient_accumulation_steps
    mine = (
        batches[rank * each : (rank + 1) * each] if options.front_end == "loop" else batches[rank :: options.world_size]
    )
    return [min(batch) < -(-max(batch) // width) * width for batch in mine]


def rows(step: int, options: Options) -> Rows:
    """The global batch of a step."""
    import torch

    ids = tiny.batch(step, architectures.vocabulary(options), length(options))
    place = torch.arange(ids.shape[1])
    if options.data == "prompt_masked":
        learned = place >= torch.tensor(PROMPTS)[:, None]
        return Rows(ids, ids.masked_fill(~learned, IGNORED))
    if options.data in ("plain", "long"):
        return Rows(ids, ids)
    if options.data == "packed":
        positions = torch.stack([torch.cat([torch.arange(size) for size in row]) for row in DOCUMENTS])
        return Rows(ids, ids.masked_fill(positions == 0, IGNORED), positions=positions)
    padding = ids.shape[1] - torch.tensor(LENGTHS)[:, None]
    is_left = options.data == "padded_left"
    real = place >= padding if is_left else place < ids.shape[1] - padding
    # On the left, the first real token would be predicted by padding, whose output means nothing.
    learned = place > padding if is_left else real
    return Rows(ids.masked_fill(~real, tiny.PADDING), ids.masked_fill(~learned, IGNORED), real)


def shard(step: int, rank: int, options: Options) -> Rows:
    """The rows that a rank trains on; no two ranks see the same row."""
    return rows(step, options).parts(options.world_size)[rank]
