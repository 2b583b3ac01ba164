"""Packing: which tokens a packed row has, what of it is learned, and whether its documents see each other.

https://huggingface.co/docs/trl/sft_trainer#packing and https://huggingface.co/docs/trl/reducing_memory_usage#packing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients, trl_trainers
from cases.behaviour.data import seen
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context

GROUP = "Packing"
SAME = 1e-5  # relative: a loss in float32
LENGTHS = (5, 2, 9, 3, 7, 4, 1, 6)  # of documents
ROOM = 10  # tokens of a packed row
BATCH = 3  # documents that are packed together


def documents(lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    """Documents whose tokens are all different."""
    starts = [10 + sum(lengths[:number]) for number in range(len(lengths))]
    return [list(range(start, start + length)) for start, length in zip(starts, lengths, strict=True)]


def best_fit_decreasing(lengths: Sequence[int], room: int) -> list[int]:
    """The number of tokens in each row: the longest document first, into the fullest row that has room for it.

    https://arxiv.org/abs/2404.10830, section 3.
    """
    rows: list[int] = []
    for length in sorted(lengths, reverse=True):
        fitting = [number for number, used in enumerate(rows) if used + length <= room]
        if fitting:
            rows[max(fitting, key=lambda number: rows[number])] += length
        else:
            rows.append(length)
    return rows


def packed(strategy: str, lengths: Sequence[int] = LENGTHS) -> Any:
    """The packed rows of documents."""
    from trl import pack_dataset

    return pack_dataset(ingredients.dataset(input_ids=documents(lengths)), seq_length=ROOM, strategy=strategy)


def cut(row: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """A row in parts of these sizes."""
    return [list(row[sum(sizes[:number]) : sum(sizes[: number + 1])]) for number in range(len(sizes))]


@call(GROUP, phase=Phase.FORWARD, requires=("packing_strategies",))
def packing_best_fit(_ctx: Context) -> Iterator[Check]:
    """Packing with strategy="bfd" keeps documents whole, each once, in as many rows as best-fit decreasing needs."""
    found = packed("bfd")
    sizes = "seq_lengths" if "seq_lengths" in found.column_names else None
    yield equal(
        "lengths of the rows",
        str(sorted(map(len, found["input_ids"]))),
        str(sorted(best_fit_decreasing(LENGTHS, ROOM))),
    )
    yield equal("tokens", str(sorted(seen.joined(found["input_ids"]))), str(seen.joined(documents())))
    whole = [
        document in [row[at : at + len(document)] for row in found["input_ids"] for at in range(ROOM)]
        for document in documents()
    ]
    yield equal("documents in one piece", sum(whole), len(LENGTHS))
    if sizes is not None:
        parts = [
            part for row, lengths in zip(found["input_ids"], found[sizes], strict=True) for part in cut(row, lengths)
        ]
        yield equal("documents by seq_lengths", str(sorted(parts)), str(documents()))


@call(GROUP, phase=Phase.FORWARD, requires=("packing_strategies",))
def packing_wrapped(_ctx: Context) -> Iterator[Check]:
    """Packing with strategy="wrapped" cuts the stream of all documents into full rows, every token once, in order."""
    found, stream = packed("wrapped"), seen.joined(documents())
    expected = [stream[at : at + ROOM] for at in range(0, len(stream), ROOM)]
    yield seen.same_rows("rows", found["input_ids"], expected)


@call(GROUP, phase=Phase.FORWARD, requires=("packing_strategies",))
def packing_of_batches(_ctx: Context) -> Iterator[Check]:
    """Packing takes documents in batches, the tokens of each batch once and those of no other, also of a selection.

    Dataset.map hands on 1000 rows at a time, unless map_kwargs have another batch_size.
    """
    from trl import pack_dataset

    data = ingredients.dataset(input_ids=documents())
    for first, end in ((0, len(LENGTHS)), (2, 7)):
        chosen, title = documents()[first:end], f"documents {first} to {end}"
        parts = [chosen[at : at + BATCH] for at in range(0, len(chosen), BATCH)]
        found = {
            strategy: pack_dataset(
                data.select(range(first, end)), seq_length=ROOM, strategy=strategy, map_kwargs={"batch_size": BATCH}
            )["input_ids"]
            for strategy in ("wrapped", "bfd")
        }
        streams = [seen.joined(part) for part in parts]
        expected = [stream[at : at + ROOM] for stream in streams for at in range(0, len(stream), ROOM)]
        yield seen.same_rows(f"wrapped rows, {title}", found["wrapped"], expected)
        sizes = [size for part in parts for size in best_fit_decreasing([len(each) for each in part], ROOM)]
        yield equal(f"lengths of the rows, {title}", str(sorted(map(len, found["bfd"]))), str(sorted(sizes)))
        yield equal(f"tokens, {title}", str(sorted(seen.joined(found["bfd"]))), str(seen.joined(chosen)))


@call(GROUP, phase=Phase.FORWARD, requires=("packing_split",))
def packing_split(_ctx: Context) -> Iterator[Check]:
    """Packing with strategy="bfd_split" splits documents longer than a row and keeps every token once."""
    found = packed("bfd_split", (25, 3, 4, 8))
    yield equal("tokens", str(sorted(seen.joined(found["input_ids"]))), str(seen.joined(documents((25, 3, 4, 8)))))
    pieces = best_fit_decreasing((ROOM, ROOM, 5, 3, 4, 8), ROOM)
    yield equal("lengths of the rows", str(sorted(map(len, found["input_ids"]))), str(sorted(pieces)))


@call(GROUP, phase=Phase.FORWARD, requires=("packing_strategies",))
def packing_of_empty_documents(_ctx: Context) -> Iterator[Check]:
    """Packing with strategy="bfd" leaves out documents without tokens: no row and no length of a document is 0."""
    lengths = (5, 0, 9, 3, 0, 4)
    found = packed("bfd", lengths)
    rows = found["input_ids"]
    yield equal("tokens", str(sorted(seen.joined(rows))), str(seen.joined(documents(lengths))))
    sizes = best_fit_decreasing([each for each in lengths if each], ROOM)
    yield equal("lengths of the rows", str(sorted(map(len, rows))), str(sorted(sizes)))
    if "seq_lengths" in found.column_names:  # since trl 0.20
        held = sorted(seen.joined(found["seq_lengths"]))
        yield equal("lengths of documents", str(held), str(sorted(each for each in lengths if each)))


@call(GROUP, phase=Phase.FORWARD, requires=("packing_truncates",))
def packing_truncates(_ctx: Context) -> Iterator[Check]:
    """Packing with strategy="bfd" cuts documents that are longer than a row, as it documents since trl 0.28."""
    found = packed("bfd", (25, 3, 4))
    kept = [document[:ROOM] for document in documents((25, 3, 4))]
    yield equal("tokens", str(sorted(seen.joined(found["input_ids"]))), str(sorted(seen.joined(kept))))


def sft(ctx: Context, **more: Any) -> Any:
    """SFTTrainer on tokenised documents whose first token is not predicted."""
    data = ingredients.dataset(input_ids=documents())
    return trl_trainers.supervised(ctx, data, trl_trainers.sft_config(ctx, max_steps=1, **more))


def bounds_of(positions: Sequence[int]) -> list[int]:
    """The lengths of the documents of a row, by positions that restart."""
    starts = [place for place, position in enumerate(positions) if position == 0]
    return [end - start for start, end in zip(starts, [*starts[1:], len(positions)], strict=True)]


def judged_documents(ctx: Context, batch: dict[str, Any], loss: float) -> Iterator[Check]:
    """Compare a batch of packed rows with the documents, and its loss with that of documents that are apart."""
    places = [[int(value) for value in row] for row in batch["position_ids"]]
    ids, labels = ([[int(value) for value in row] for row in batch[name]] for name in ("input_ids", "labels"))
    found = [part for row, where in zip(ids, places, strict=True) for part in cut(row, bounds_of(where))]
    wanted = [part for row, where in zip(labels, places, strict=True) for part in cut(row, bounds_of(where))]
    yield equal("documents by positions", str(sorted(found)), str(documents()))
    yield equal(
        "positions that count up",
        all(where == list(range(len(where))) for row in places for where in cut(row, bounds_of(row))),
        bound=True,
    )
    yield equal("first labels learned", sum(part[0] != ingredients.IGNORED for part in wanted), 0)
    yield equal("other labels", str(sorted(part[1:] for part in wanted)), str(sorted(part[1:] for part in documents())))
    numbers = [number for where in places for number, part in enumerate(cut(where, bounds_of(where))) for _ in part]
    yield equal("numbers of documents", numbers_of(batch, numbers), str(numbers))
    yield equal("a mask, which would hide the documents", batch.get("attention_mask") is not None, bound=False)
    expected = seen.documents_loss(ctx, [(part, [ingredients.IGNORED, *part[1:]]) for part in documents()])
    yield at_most("loss off", abs(loss / expected - 1), SAME)


def numbers_of(batch: Any, known: list[int]) -> str:
    """The document of each token, which layers with a linear attention read; ``known`` in versions without it."""
    found = batch.get("seq_idx")
    return str(known if found is None else [int(number) for row in found for number in row])


@call(GROUP, phase=Phase.FORWARD, requires=("packing_strategies", "packed_mask"))
def sft_packs_documents(ctx: Context) -> Iterator[Check]:
    """SFTTrainer(packing=True) learns each document as if it were alone, without FlashAttention too.

    Transformers makes a block-diagonal mask of positions that restart.
    """
    trainer = sft(ctx, packing=True, packing_strategy="bfd", max_length=ROOM, per_device_train_batch_size=8)
    batches = seen.batches(trainer.model)
    trainer.train()
    yield from judged_documents(ctx, batches[0], seen.first_loss(trainer))


@call(GROUP, phase=Phase.FORWARD, requires=("padding_free", "packed_mask"))
def sft_padding_free(ctx: Context) -> Iterator[Check]:
    """SFTTrainer(padding_free=True) puts a batch into one row and learns each document as if it were alone."""
    trainer = sft(ctx, padding_free=True, max_length=None, per_device_train_batch_size=8)
    batches = seen.batches(trainer.model)
    trainer.train()
    yield equal("rows of the batch", len(batches[0]["input_ids"]), 1)
    yield from judged_documents(ctx, batches[0], seen.first_loss(trainer))


def flattened() -> dict[str, Any]:
    """All documents in one row, as DataCollatorWithFlattening makes it."""
    import torch

    parts = [torch.tensor(part) for part in documents()]
    labels = [torch.cat([torch.tensor([ingredients.IGNORED]), part[1:]]) for part in parts]
    rows = {"input_ids": parts, "labels": labels, "position_ids": [torch.arange(len(part)) for part in parts]}
    return {name: torch.cat(each)[None] for name, each in rows.items()}


@call(GROUP, phase=Phase.FORWARD, requires=("packed_mask",))
def packed_row(ctx: Context) -> Iterator[Check]:
    """A model keeps the documents of a row with positions that restart apart with use_cache=False."""
    loss = float(ingredients.base(ctx).train()(**flattened(), use_cache=False).loss)
    yield from judged_documents(ctx, flattened(), loss)


@call(GROUP, phase=Phase.FORWARD, requires=("packed_mask",))
def packed_row_with_cache(ctx: Context) -> Iterator[Check]:
    """A model in training mode keeps packed documents apart with use_cache=True too, which most checkpoints say."""
    loss = float(ingredients.base(ctx).train()(**flattened(), use_cache=True).loss)
    yield from judged_documents(ctx, flattened(), loss)


@call(GROUP, phase=Phase.FORWARD, requires=("constant_length",))
def packing_constant_length(_ctx: Context) -> Iterator[Check]:
    """ConstantLengthDataset joins texts by the end token and cuts the stream into full rows, every token in order."""
    from trl.trainer import ConstantLengthDataset

    texts = [" ".join(f"w{token}" for token in document) for document in documents()]
    rows = ConstantLengthDataset(
        ingredients.tokenizer(),
        ingredients.dataset(text=texts),
        dataset_text_field="text",
        seq_length=ROOM,
        shuffle=False,
        append_concat_token=True,
    )
    stream = [token for document in documents() for token in (*document, 2)]
    expected = [stream[at : at + ROOM] for at in range(0, len(stream) - ROOM + 1, ROOM)]
    found = list(rows)
    yield seen.same_rows("rows", [row["input_ids"] for row in found], expected)
    yield seen.same_rows("labels", [row["labels"] for row in found], expected)
