"""Rows in the forms that TRL's trainers document: conversations, pairs for KTO, and texts whose tokens merge.

https://huggingface.co/docs/trl/dataset_formats
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, kto, policies, preference
from cases.behaviour.preferences.inputs import batches
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of TRL"
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}w5{% else %}w4{% endif %} "
    "{{ message['content'] }} </s> {% endfor %}{% if add_generation_prompt %}w5 {% endif %}"
)
USER, ASSISTANT = 4, 5  # the ids of the words that begin a turn
LENGTHS = ((3, 4, 2), (5, 2, 6), (2, 3, 3), (4, 1, 5))
PAIRED = ("DPO", "CPO", "ORPO", "Reward")


def chat() -> Any:
    made = ingredients.tokenizer()
    made.chat_template = TEMPLATE
    return made


def words(ids: list[int]) -> str:
    return policies.text(ids).strip()


def turn(role: str, ids: list[int]) -> list[dict[str, str]]:
    return [{"role": role, "content": words(ids)}]


def known(kinds: tuple[str, ...]) -> list[str]:
    """The trainers that this version has: releases of TRL move, add and remove some."""
    return [kind for kind in kinds if is_known(kind)]


def is_known(kind: str) -> bool:
    try:
        alignment.named(f"{kind}Trainer")
    except (ImportError, AttributeError):
        return False
    return True


def conversations(kind: str, rows: list[list[list[int]]]) -> Any:
    """The data set of a trainer, of messages: each row is a prompt and two answers."""
    if kind == "SFT":
        return ingredients.dataset(messages=[turn("user", p) + turn("assistant", a) for p, a, _ in rows])
    prompts, good, bad = (
        [turn(role, row[place]) for row in rows] for place, role in enumerate(("user", "assistant", "assistant"))
    )
    if kind == "KTO":
        return ingredients.dataset(
            prompt=prompts, completion=good, label=[place % 2 == 0 for place in range(len(rows))]
        )
    if kind == "Reward":
        joined = {"chosen": good, "rejected": bad}
        return ingredients.dataset(
            **{
                name: [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
                for name, answers in joined.items()
            }
        )
    return ingredients.dataset(prompt=prompts, chosen=good, rejected=bad)


def rendered(kind: str, rows: list[list[list[int]]]) -> list[list[int]]:
    """The token ids of each sequence, by hand: words of roles, contents and end tokens."""
    answers = [row[1] for row in rows] + ([row[2] for row in rows] if kind in PAIRED else [])
    prompts = [row[0] for row in rows] * (2 if kind in PAIRED else 1)
    return [
        [USER, *prompt, tiny.END, ASSISTANT, *answer, tiny.END] for prompt, answer in zip(prompts, answers, strict=True)
    ]


def made(ctx: Context, kind: str, data: Any, **chosen: Any) -> Any:
    tokenizer = chosen.pop("tokenizer", None) or chat()
    settings = {"per_device_train_batch_size": len(data), "remove_unused_columns": kind == "SFT", **chosen}
    model = scored(ctx) if kind == "Reward" else ingredients.base(ctx)
    more = {} if kind in ("CPO", "ORPO", "SFT", "Reward") else {"ref_model": ingredients.base(ctx)}
    return alignment.create(ctx, kind, settings, tokenizer=tokenizer, model=model, train_dataset=data, **more)


def scored(ctx: Context) -> Any:
    from transformers import AutoModelForSequenceClassification

    from cases.model import architectures

    folder = architectures.plain_checkpoint(ctx.cache)
    return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, pad_token_id=tiny.PADDING)


@call(GROUP, phase=Phase.FORWARD)
def trl_reads_conversations(ctx: Context) -> Iterator[Check]:
    """Each trainer of TRL renders conversations by the chat template, and learns the answer with its end token.

    Some versions add their own tokens: one at the start, one at the end.
    """
    rows = policies.texts(LENGTHS)
    for kind in known((*PAIRED, "KTO", "SFT")):
        found = batches.sequences(made(ctx, kind, conversations(kind, rows)))
        wanted = rendered(kind, rows)
        yield equal(f"sequences, {kind}", len(found), len(wanted))
        for place, (each, ids) in enumerate(zip(found, wanted, strict=False)):
            inner = list(each.ids)[int(each.ids[:1] == (tiny.START,)) :][: len(ids)]
            added = len(each.ids) - len(ids)
            yield equal(f"ids of sequence {place}, {kind}", str(inner), str(ids))
            yield equal(f"tokens added to sequence {place} at most two, {kind}", added in range(3), bound=True)
            if kind not in ("SFT", "Reward"):
                answer = ids[ids.index(ASSISTANT) + 1 :]
                learned = list(each.learned)[: len(answer)]
                yield equal(f"learned of sequence {place}, {kind}", str(learned), str(answer))


@call(GROUP, phase=Phase.FORWARD)
def kto_reads_pairs(ctx: Context) -> Iterator[Check]:
    """KTOTrainer makes a desirable and an undesirable row of each pair of a preference data set."""
    pairs = preference.pairs(LENGTHS)
    trainer = made(ctx, "KTO", preference.columns(pairs), per_device_train_batch_size=2 * len(pairs))
    batch = next(iter(trainer.get_train_dataloader()))
    found = sorted(
        (list(each.ids), bool(label)) for each, label in zip(batches.of_batch(batch), batch["label"], strict=True)
    )
    wanted = sorted(
        ([*prompt, *answer], place == 0) for pair in pairs for place, (prompt, answer) in enumerate(pair.sequences)
    )
    yield equal("rows of pairs", str(found), str(wanted))
    learned = sorted(list(each.learned) for each in batches.of_batch(batch))
    yield equal("learned of pairs", str(learned), str(sorted(answer for pair in pairs for _, answer in pair.sequences)))


@call(GROUP, phase=Phase.FORWARD)
def kto_keeps_other_columns(ctx: Context) -> Iterator[Check]:
    """KTOTrainer takes rows of prompt, completion and label as they are, whatever other columns a data set has."""
    rows = kto.rows()
    wanted = sorted(([*row.prompt, *row.completion, tiny.END], row.desirable) for row in rows)
    for column in ("chosen", "rejected", "note"):
        data = kto.columns(rows).add_column(column, ["w9"] * len(rows))
        batch = next(iter(made(ctx, "KTO", data).get_train_dataloader()))
        found = sorted(
            (list(each.ids), bool(label)) for each, label in zip(batches.of_batch(batch), batch["label"], strict=True)
        )
        yield equal(f"rows beside a column {column}", str(found), str(wanted))


def merging() -> Any:
    """A tokeniser of characters that merges ``ab`` into one token."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    letters = {letter: policies.FIRST + place for place, letter in enumerate("abcdefxyz")}
    ids = {**{word: place for place, word in enumerate(ingredients.SPECIAL)}, **letters, "ab": 40}
    made = Tokenizer(models.BPE(vocab=ids, merges=[("a", "b")], unk_token="<unk>"))  # noqa: S106 - no secret
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), ingredients.SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=made, **names)


@call(GROUP, phase=Phase.FORWARD)
def trl_reads_merging_tokens(ctx: Context) -> Iterator[Check]:
    """If the last letter of a prompt and the first of an answer are one token, a trainer reads and learns that token.

    The other answer of the pair begins with another letter.
    """
    tokenizer = merging()
    given: dict[str, list[Any]] = {"prompt": ["cda", "xya"], "chosen": ["bef", "bz"], "rejected": ["bcd", "bxx"]}
    merged = {"cda": "cd", "xya": "xy"}
    letters = {letter: policies.FIRST + place for place, letter in enumerate("abcdefxyz")}
    for kind in known(("CPO", "ORPO", "KTO")):
        data = dict(given)
        if kind == "KTO":
            data = {"prompt": given["prompt"], "completion": given["chosen"], "label": [True, False]}
        answers = [data["completion"]] if kind == "KTO" else [data["chosen"], data["rejected"]]
        wanted = [
            ([letters[each] for each in merged[prompt]], [40, *(letters[each] for each in answer[1:]), tiny.END])
            for column in answers
            for prompt, answer in zip(given["prompt"], column, strict=True)
        ]
        found = batches.sequences(made(ctx, kind, ingredients.dataset(**data), tokenizer=tokenizer))
        for place, (each, (prompt, answer)) in enumerate(zip(found, wanted, strict=True)):
            ids = list(each.ids)[int(each.ids[:1] == (tiny.START,)) :]
            yield equal(f"ids of merged sequence {place}, {kind}", str(ids), str([*prompt, *answer]))
            yield equal(f"learned of merged sequence {place}, {kind}", str(list(each.learned)), str(answer))
