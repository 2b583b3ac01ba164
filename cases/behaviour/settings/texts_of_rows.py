"""How SFTTrainer makes texts of a user's rows: by a function, by another column, and by a template from a file.

https://huggingface.co/docs/trl/sft_trainer#trl.SFTTrainer, formatting_func, dataset_text_field, chat_template_path
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.data import seen
from cases.behaviour.data.chat_templates import SHORT, TALK, UNMARKED, messages
from cases.behaviour.preferences import alignment
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of TRL"
QUESTIONS, ANSWERS = ([20, 21], [30], [40, 41, 42]), ([22], [31, 32], [43])
LOUD = "w77 " + UNMARKED


def words(ids: list[int]) -> str:
    return " ".join(f"w{each}" for each in ids)


def batch_of(ctx: Context, rows: Any, chosen: dict[str, Any] | None = None, **more: Any) -> Any:
    """The first batch of an SFTTrainer, with all rows, in the order in which the trainer holds them."""
    usual = {"per_device_train_batch_size": len(rows), "max_steps": 1, "remove_unused_columns": True}
    given = {"model": ingredients.base(ctx), "train_dataset": rows}
    trainer = alignment.create(ctx, "SFT", {**usual, **(chosen or {})}, **given, **more)
    return next(iter(trainer.get_train_dataloader()))


def bare(batch: Any) -> list[list[int]]:
    """The rows of a batch without padding, and without an end token, which only some versions add."""
    rows = [[int(each) for each in row if each != tiny.PADDING] for row in batch["input_ids"]]
    return [row[:-1] if row[-1] == tiny.END else row for row in rows]


def asked(row: dict[str, Any]) -> Any:
    """A text of a row, or of each of several, as versions before trl 0.13 give them."""
    pairs = (row["question"], row["answer"])
    if isinstance(row["question"], list):
        return [f"w9 {one} w8 {other}" for one, other in zip(*pairs, strict=True)]
    return f"w9 {pairs[0]} w8 {pairs[1]}"


@call(GROUP, phase=Phase.FORWARD)
def sft_formats_rows(ctx: Context) -> Iterator[Check]:
    """formatting_func makes SFTTrainer's texts of rows; without one, dataset_text_field names the column of texts."""
    rows = ingredients.dataset(question=list(map(words, QUESTIONS)), answer=list(map(words, ANSWERS)))
    wanted = [[9, *one, 8, *other] for one, other in zip(QUESTIONS, ANSWERS, strict=True)]
    yield seen.same_rows("rows by a function", bare(batch_of(ctx, rows, formatting_func=asked)), wanted)
    for name, column in (("question", QUESTIONS), ("answer", ANSWERS)):
        found = bare(batch_of(ctx, rows, {"dataset_text_field": name}))
        yield seen.same_rows(f"rows of the column {name}", found, [list(each) for each in column])


@call("Chat templates", phase=Phase.FORWARD, requires=("sft_chat_template_path",))
def sft_takes_templates_of_files(ctx: Context) -> Iterator[Check]:
    """chat_template_path gives SFTTrainer's tokeniser the template of a file, or that of another tokeniser's folder."""
    path, folder = ctx.kept / "loud.jinja", ctx.kept / "tokenizer"
    path.write_text(LOUD, encoding="utf-8")
    other = ingredients.tokenizer()
    other.chat_template = LOUD
    other.save_pretrained(folder)
    talks = (TALK, SHORT)
    rows = ingredients.dataset(messages=[messages(talk) for talk in talks])
    roles = {"system": 100, "user": 101, "assistant": 102}
    plain = [[token for role, said in talk for token in (roles[role], *said, tiny.END)] for talk in talks]
    for title, chosen in (("a file", str(path)), ("a folder", str(folder))):
        own = ingredients.tokenizer()
        own.chat_template = UNMARKED
        found = bare(batch_of(ctx, rows, {"chat_template_path": chosen}, tokenizer=own))
        yield seen.same_rows(f"rows by the template of {title}", found, [[77, *row[:-1]] for row in plain])
        yield equal(f"template of the tokeniser, {title}", own.chat_template, LOUD)
