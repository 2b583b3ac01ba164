"""Packed documents that transformers finds by positions that restart: documents of every length, and of one token.

https://huggingface.co/docs/transformers/attention_interface
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Models"
NEEDS = ("packed_mask",)
SAME = 1e-5  # of logits below 10
VOCABULARY = 40
# The lengths of the documents of each row of a batch; the rows of a batch have as many tokens as each other.
BATCHES: Sequence[Sequence[Sequence[int]]] = (
    ((5,),),
    ((1,),),
    ((2, 3, 1),),
    ((1, 4),),
    ((1, 1, 1, 1),),
    ((1, 1, 3, 1, 2),),
    ((3, 3), (6,)),
    ((1, 5), (5, 1), (2, 1, 3)),
    ((1, 2, 1, 1, 1), (6,), (1,) * 6),
)


def positions(lengths: Sequence[int], begin: int = 0) -> list[int]:
    return [begin + place for length in lengths for place in range(length)]


def documents(lengths: Sequence[int]) -> list[int]:
    """The number of the document of each token."""
    return [number for number, length in enumerate(lengths) for _ in range(length)]


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def packed_indices(_ctx: Context) -> Iterator[Check]:
    """Positions that do not follow the one before begin another document, of whatever length; rows are apart.

    Documents may begin at any position. A batch with one document in each row has no packed documents.
    """
    import torch
    from transformers.masking_utils import find_packed_sequence_indices

    for batch, begin in itertools.product(BATCHES, (0, 7)):
        title = f"{batch}, from {begin}"
        rows = torch.tensor([positions(lengths, begin) for lengths in batch])
        found = find_packed_sequence_indices(rows)
        wanted = [documents(lengths) for lengths in batch]
        numbers = torch.zeros_like(rows) if found is None else found
        yield equal(f"documents, {title}", str(numbers.tolist()), str(wanted))
    for name, row in {"restarts within": [0, 1, 2, 1, 2], "skips": [0, 1, 5, 6, 9]}.items():
        expected = {"restarts within": [0, 0, 0, 1, 1], "skips": [0, 0, 1, 1, 2]}[name]
        found = find_packed_sequence_indices(torch.tensor([row]))
        yield equal(f"documents, a row that {name}", str(None if found is None else found.tolist()), str([expected]))


def model(attention: str) -> Any:
    """A Llama of two layers, whose weights are large enough that each token seen changes the logits."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, attn_implementation=attention, **sizes)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    return made


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def packed_documents_alone(_ctx: Context) -> Iterator[Check]:
    """The logits of packed documents are those of each document alone, after documents of one token too.

    Without positions, the documents of a row see each other.
    """
    import torch

    for attention, batch in itertools.product(("eager", "sdpa"), BATCHES):
        made = model(attention)
        tokens = sum(batch[0])
        ids = torch.arange(len(batch) * tokens).view(len(batch), tokens) * 7 % VOCABULARY
        rows = torch.tensor([positions(lengths) for lengths in batch])
        with torch.no_grad():
            found = made(input_ids=ids, position_ids=rows, use_cache=False).logits
            joined = made(input_ids=ids, use_cache=False).logits
            alone = torch.stack(
                [
                    torch.cat(
                        [made(input_ids=part[None], use_cache=False).logits[0] for part in row.split(list(lengths))]
                    )
                    for row, lengths in zip(ids, batch, strict=True)
                ]
            )
        title = f"{attention}, {batch}"
        yield at_most(
            f"logits off, {title}", float((found - alone).abs().max()), SAME * max(1.0, float(alone.abs().max()))
        )
        several = any(len(lengths) > 1 for lengths in batch)
        yield equal(f"documents that matter, {title}", bool((joined - alone).abs().max() > 100 * SAME), several)
