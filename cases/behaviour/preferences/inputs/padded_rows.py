"""Batches of TRL's trainers: rows padded to a multiple of tokens, and what models read of rows of different lengths.

https://huggingface.co/docs/trl: "pad_to_multiple_of: If set, the sequences will be padded to a multiple of this value."
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, policies
from cases.behaviour.preferences.inputs import batches
from cases.behaviour.preferences.inputs.prepared_columns import GROUP, LENGTHS, beginning, texts
from cases.behaviour.preferences.inputs.row_forms import known, made
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_least, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

    Read = list[tuple[Any, Any]]  # the ids and the mask of each pass

KINDS = ("DPO", "KTO", "CPO", "ORPO", "Reward", "SFT")


@call(GROUP, phase=Phase.FORWARD, requires=("dpo_pad_to_multiple_of",))
def trl_pads_to_multiples(ctx: Context) -> Iterator[Check]:
    """Each trainer with pad_to_multiple_of pads its batches to a multiple of that, and keeps every sequence."""
    rows = policies.texts(LENGTHS)
    for kind in known(KINDS):
        if "pad_to_multiple_of" not in alignment.options_of(kind):
            continue
        data = texts(kind, rows)
        plain = batches.sequences(made(ctx, kind, data))
        for multiple in (8, 5, 16):
            trainer = made(ctx, kind, data, pad_to_multiple_of=multiple)
            batch = next(iter(trainer.get_train_dataloader()))
            widths = {each.shape[1] for name, each in batch.items() if "input_ids" in name}
            off = [width for width in widths if width % multiple]
            yield equal(f"widths that are no multiple of {multiple}, {kind}", str(off), "[]")
            same = [*batches.of_batch(batch)] == plain
            yield equal(f"sequences as without padding to {multiple}, {kind}", same, bound=True)


UNEVEN = ((6, 1, 2), (1, 6, 3), (3, 2, 5), (2, 4, 1))  # the longest prompt has the shortest answers
WITH_PROMPTS = ("DPO", "KTO", "CPO", "ORPO")


def wanted(kind: str, rows: list[list[list[int]]]) -> list[list[int]]:
    """The sequences of a batch by hand, without a start."""
    return answered(rows, (1,) if kind == "KTO" else (1, 2))


def answered(rows: list[list[list[int]]], places: tuple[int, ...]) -> list[list[int]]:
    """The prompts, each with its answer at these places of a row and an end."""
    return [[*row[0], *row[place], tiny.END] for place in places for row in rows]


def read_by(ctx: Context, kind: str) -> Read:
    """What the model reads as the trainer trains on all rows at once."""
    trainer = made(ctx, kind, texts(kind, policies.texts(UNEVEN)), max_steps=1, learning_rate=0.0)
    found: Read = []

    def note(_module: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids = positional[0] if positional else named["input_ids"]
        mask = named.get("attention_mask")
        found.append((ids.clone(), ids * 0 + 1 if mask is None else mask.clone()))

    trainer.model.register_forward_pre_hook(note, with_kwargs=True)
    trainer.train()
    return found


@call(GROUP, phase=Phase.FORWARD)
def pairs_read_whole(ctx: Context) -> Iterator[Check]:
    """The models of DPOTrainer and its kin read every sequence of a batch whole, from the prompt to the end token."""
    for kind in known(WITH_PROMPTS):
        rows = [row for ids, mask in read_by(ctx, kind) for row in batches.plain(ids, mask)]
        found = [list(row)[int(row[:1] == (tiny.START,)) :] for row in rows]
        lacking = [ids for ids in wanted(kind, policies.texts(UNEVEN)) if ids not in found]
        yield equal(f"sequences that the model does not read whole, {kind}", str(lacking), "[]")


@call(GROUP, phase=Phase.FORWARD)
def pairs_without_empty_columns(ctx: Context) -> Iterator[Check]:
    """The models of DPOTrainer and its kin read no column of a batch that is padding in every row."""
    for kind in known(WITH_PROMPTS):
        passes = read_by(ctx, kind)
        yield at_least(f"passes, {kind}", len(passes), 1)
        empty = [int((mask.sum(0) == 0).sum()) for _, mask in passes]
        yield equal(f"columns of padding alone, {kind}", str(empty), str([0] * len(passes)))


@call(GROUP, phase=Phase.FORWARD, requires=("orpo", "cpo"))
def pairs_begin_once(ctx: Context) -> Iterator[Check]:
    """CPOTrainer and ORPOTrainer put one start before a prompt, whether the tokeniser adds it, the text or neither."""
    rows = policies.texts(UNEVEN)
    begun = [[[tiny.START, *row[0]], *row[1:]] for row in rows]
    for kind in ("CPO", "ORPO"):
        expected = str([[tiny.START, *ids] for ids in wanted(kind, rows)])
        for name, given, adds in (("neither", rows, False), ("the tokeniser", rows, True), ("the text", begun, False)):
            found = batches.sequences(made(ctx, kind, texts(kind, given), tokenizer=beginning(adds=adds)))
            yield equal(f"sequences with a start by {name}, {kind}", str([list(each.ids) for each in found]), expected)


@call(GROUP, phase=Phase.FORWARD, requires=("sft_completion_only_loss",))
def sft_marks_completions(ctx: Context) -> Iterator[Check]:
    """SFTTrainer marks prompts with 0 and answers with 1 in completion_mask, and learns what completion_only_loss says.

    By default answers alone are learned; with False, the prompts are learned too, and the column stays.
    """
    rows = policies.texts(UNEVEN)
    data = ingredients.dataset(
        prompt=[policies.text(row[0]).strip() for row in rows], completion=[policies.text(row[1]) for row in rows]
    )
    masks = [[0] * len(row[0]) + [1] * (len(row[1]) + 1) for row in rows]
    ids = answered(rows, (1,))
    for only in (None, True, False):
        settings = {"per_device_train_batch_size": len(rows), "completion_only_loss": only}
        given = {"remove_unused_columns": True, "learning_rate": 0.0, **settings}
        trainer = alignment.create(ctx, "SFT", given, model=ingredients.base(ctx), train_dataset=data)
        title = f"completion_only_loss={only}"
        if "completion_mask" in trainer.train_dataset.column_names:
            found = [list(row) for row in trainer.train_dataset["completion_mask"]]
            yield equal(f"completion_mask, {title}", str(found), str(masks))
        found = [list(each.learned) for each in batches.sequences(trainer)]
        learned = ids if only is False else [[*row[1], tiny.END] for row in rows]
        yield equal(f"learned, {title}", str(found), str(learned))
