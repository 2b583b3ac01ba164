"""The columns of the data sets that TRL's trainers prepare: ids, masks, labels, and tokens at both ends of a row."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.preferences import alignment, policies
from cases.behaviour.preferences.inputs import batches
from cases.behaviour.preferences.inputs.row_forms import known, made, scored
from cases.model import tiny
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of TRL"
LENGTHS = ((3, 4, 2), (5, 2, 6), (2, 3, 3), (4, 1, 5))
KINDS = ("DPO", "KTO", "CPO", "ORPO", "Reward", "SFT")


def beginning(*, adds: bool) -> Any:
    """The tokeniser of words; one that adds the start token by itself, or one that leaves this to its caller."""
    from tokenizers import processors

    plain = ingredients.tokenizer()
    if adds:
        plain._tokenizer.post_processor = processors.TemplateProcessing(  # noqa: SLF001 - as converters do
            single="<s> $A", special_tokens=[("<s>", tiny.START)]
        )
    return plain


def texts(kind: str, rows: list[list[list[int]]]) -> Any:
    """The data set of a trainer: a prompt and two answers, a row of KTO, or one text."""
    prompts, good, bad = ([policies.text(row[place]) for row in rows] for place in range(3))
    prompts = [each.strip() for each in prompts]
    joined = [[one + other for one, other in zip(prompts, each, strict=True)] for each in (good, bad)]
    if kind == "KTO":
        labels = [place % 2 == 0 for place in range(len(rows))]
        return ingredients.dataset(prompt=prompts, completion=good, label=labels)
    if kind == "SFT":
        return ingredients.dataset(text=joined[0])
    if kind == "Reward":
        return ingredients.dataset(chosen=joined[0], rejected=joined[1])
    return ingredients.dataset(prompt=prompts, chosen=good, rejected=bad)


def columns(trainer: Any) -> dict[str, list[list[int]]]:
    """The columns of whole numbers of a trainer's data set, by name."""
    data = trainer.train_dataset
    found = {name: list(data[name]) for name in data.column_names}
    return {name: rows for name, rows in found.items() if isinstance(rows[0], list) and isinstance(rows[0][:1], list)}


def faults(columns: dict[str, list[list[int]]], *, whole: bool) -> Iterator[str]:
    """What masks and labels of a data set without padding must not have, with the name of the column.

    ``whole``: labels may cover the whole row, as those of a text do.
    """
    for name, rows in columns.items():
        if "attention_mask" in name:
            ids = columns.get(name.replace("attention_mask", "input_ids"))
            yield from (name for row in rows if any(entry != 1 for entry in row))
            yield from (f"{name}, length" for row, own in zip(rows, ids or rows, strict=True) if len(row) != len(own))
        if name.endswith("labels"):
            ids = columns[name.replace("labels", "input_ids")]
            for row, own in zip(rows, ids, strict=True):
                begin = next((at for at, label in enumerate(row) if label != ingredients.IGNORED), len(row))
                yield from [name] * (row[begin:] != own[begin:] or begin == len(row) or (begin == 0 and not whole))


@call(GROUP, phase=Phase.FORWARD)
def trl_columns_of_rows(ctx: Context) -> Iterator[Check]:
    """Masks of prepared rows are 1 on every token, special ones too, and labels are the ids from the answer on.

    A tokeniser that adds the start token and one that does not give the same columns, but for the start that some
    trainers add.
    """
    rows = policies.texts(LENGTHS)
    for kind in known(KINDS):
        for adds in (False, True):
            trainer = made(ctx, kind, texts(kind, rows), tokenizer=beginning(adds=adds), remove_unused_columns=False)
            found = columns(trainer)
            title = f"{kind}, start {'added' if adds else 'left'}"
            yield equal(
                f"columns with another mask or label, {title}",
                str(sorted(set(faults(found, whole=kind == "SFT")))),
                "[]",
            )
            ids = {name: rows for name, rows in found.items() if "input_ids" in name or name.endswith("_ids")}
            yield equal(f"rows, {title}", str({len(rows) for rows in ids.values()}), str({len(LENGTHS)}))
            doubled = [name for name, rows in ids.items() for row in rows if row[:2] == [tiny.START] * 2]
            yield equal(f"columns with two starts, {title}", str(sorted(set(doubled))), "[]")


@call(GROUP, phase=Phase.FORWARD)
def trl_answers_without_starts(ctx: Context) -> Iterator[Check]:
    """A tokeniser that adds the start token to every text adds none between a prompt and its answer, nor behind it.

    The answer and its end are learned, whole; a start before the prompt is not.
    """
    rows = policies.texts(LENGTHS)
    for kind in known(("DPO", "KTO", "CPO", "ORPO")):
        found = batches.sequences(made(ctx, kind, texts(kind, rows), tokenizer=beginning(adds=True)))
        answers = [row[1] for row in rows] + ([] if kind == "KTO" else [row[2] for row in rows])
        prompts = [row[0] for row in rows] * (1 if kind == "KTO" else 2)
        yield equal(f"sequences, {kind}", len(found), len(answers))
        for place, (each, prompt, answer) in enumerate(zip(found, prompts, answers, strict=False)):
            ids = list(each.ids)[int(each.ids[:1] == (tiny.START,)) :]
            yield equal(f"ids of sequence {place}, {kind}", str(ids), str([*prompt, *answer, tiny.END]))
            yield equal(f"learned of sequence {place}, {kind}", str(list(each.learned)), str([*answer, tiny.END]))


def parts(ids: list[int], answer: list[int]) -> dict[str, list[int]]:
    return {
        "prompt_input_ids": [*ids],
        "prompt_attention_mask": [1] * len(ids),
        "input_ids": [*answer],
        "attention_mask": [1] * len(answer),
    }


@call(GROUP, phase=Phase.LOAD, requires=("begun_pairs",))
def pairs_get_starts_and_ends(_ctx: Context) -> Iterator[Check]:
    """A start goes before each prompt without one, an end behind each answer without one; both are attended to."""
    from trl.trainer.utils import add_bos_token_if_needed, add_eos_token_if_needed

    start, end = tiny.START, tiny.END
    for begun in (False, True):
        for which in range(3):
            ids = [[7, 8], [7, 8], [7, 8]]
            ids[which] = [start, 7, 8] if begun else []
            prompt, chosen, rejected = (parts(each, [9]) for each in ids)
            lengths = [len(each) for each in ids]
            found = add_bos_token_if_needed(start, lengths[0], prompt, lengths[1], chosen, lengths[2], rejected)
            for name, each, own in zip(("prompt", "chosen", "rejected"), found, ids, strict=True):
                title = f"{name}, {which} is {'begun' if begun else 'empty'}"
                wanted = own if own[:1] == [start] else [start, *own]
                yield equal(f"prompt of {title}", str(each["prompt_input_ids"]), str(wanted))
                yield equal(f"mask of {title}", str(each["prompt_attention_mask"]), str([1] * len(wanted)))
                yield equal(f"answer of {title}", str((each["input_ids"], each["attention_mask"])), "([9], [1])")
    plain = [parts([7], [9]) for _ in range(3)]
    same = add_bos_token_if_needed(None, 1, plain[0], 1, plain[1], 1, plain[2])
    yield equal("prompts without a start token", str([each["prompt_input_ids"] for each in same]), "[[7], [7], [7]]")
    for one in ([], [9], [9, end]):
        for other in ([], [9], [9, end]):
            both = add_eos_token_if_needed(end, parts([7], one), parts([7], other))
            for name, each, own in zip(("chosen", "rejected"), both, (one, other), strict=True):
                wanted = own if own[-1:] == [end] else [*own, end]
                held = (each["input_ids"], each["attention_mask"])
                yield equal(f"{name} answer of {one} and {other}", str(held), str((wanted, [1] * len(wanted))))


@call(GROUP, phase=Phase.FORWARD, requires=("kto_processed_rows",))
def kto_columns_of_rows(_ctx: Context) -> Iterator[Check]:
    """KTO's rows have a start, an end, masks of 1, labels of the answer, all with a prefix; others' types are refused.

    https://huggingface.co/docs/trl/kto_trainer
    """
    from trl.trainer import kto_trainer

    tokenizer = ingredients.tokenizer()
    settings = {
        "prefix": "",
        "is_encoder_decoder": False,
        "tokenizer": tokenizer,
        "max_length": 50,
        "truncation_mode": "keep_end",
        "label_pad_token_id": -9,
        "max_prompt_length": 20,
        "max_completion_length": 20,
    }
    for prompt in ([7, 8], [tiny.START, 7, 8]):
        for answer in ([9, 10], [9, 10, tiny.END], []):
            for prefix in ("", "KL_"):
                given: dict[str, list[Any]] = {
                    "prompt": ["p"],
                    "completion": ["c"],
                    "label": [True],
                    "prompt_input_ids": [prompt],
                    "prompt_attention_mask": [[1] * len(prompt)],
                    "answer_input_ids": [answer],
                    "answer_attention_mask": [[1] * len(answer)],
                }
                row = {name: copy.deepcopy(values[0]) for name, values in given.items()}
                found = kto_trainer._process_tokens(row, **{**settings, "prefix": prefix})  # noqa: SLF001 - what map calls
                begun = prompt if prompt[0] == tiny.START else [tiny.START, *prompt]
                ended = answer if answer[-1:] == [tiny.END] else [*answer, tiny.END]
                wanted = {
                    "prompt": "p",
                    "completion": "c",
                    "label": True,
                    "prompt_input_ids": begun,
                    "prompt_attention_mask": [1] * len(begun),
                    "completion_input_ids": [*begun, *ended],
                    "completion_attention_mask": [1] * (len(begun) + len(ended)),
                    "completion_labels": [-9] * len(begun) + ended,
                }
                for name, value in wanted.items():
                    found_value = str(found.get(f"{prefix}{name}"))
                    yield equal(f"{name} of {prompt} and {answer}, prefix {prefix!r}", found_value, str(value))
                yield equal(f"columns of {prompt} and {answer}, prefix {prefix!r}", len(found), len(wanted))
    for name, value in {"prompt": 3, "completion": ["c"]}.items():
        row = {"prompt": "p", "completion": "c", "label": True, name: value}
        try:
            kto_trainer._process_tokens(row, **settings)  # noqa: SLF001 - what map calls
        except ValueError as error:
            words = str(error)
        else:
            words = "nothing"
        yield equal(f"refused, a {name} of another type", words, f"{name} should be an str but got {type(value)}")


@call(GROUP, phase=Phase.FORWARD, requires=("reward_max_length_filter",))
def reward_rows_by_length(ctx: Context) -> Iterator[Check]:
    """RewardTrainer leaves out pairs with an answer longer than max_length, 512 tokens if it is None."""
    for limit, lengths in ((None, (511, 512, 513)), (6, (5, 6, 7))):
        for longer in ("chosen", "rejected"):
            plain = {"chosen": ["w9 w8"] * len(lengths), "rejected": ["w7"] * len(lengths)}
            data = {**plain, longer: [ingredients.sentence(length) for length in lengths]}
            trainer = made(ctx, "Reward", ingredients.dataset(**data), max_length=limit)
            kept = [len(row) for row in trainer.train_dataset[f"input_ids_{longer}"]]
            yield equal(f"lengths kept, {longer}, max_length={limit}", str(kept), str([*lengths[:2]]))


PAIRS = ((3, 9), (9, 3), (6, 6), (7, 6), (6, 7), (2, 4), (8, 8))  # tokens of both answers, with their ends
LIMIT = 6


@call(GROUP, phase=Phase.FORWARD)
def reward_pairs_of_two_lengths(ctx: Context) -> Iterator[Check]:
    """RewardTrainer leaves out a pair if either answer is longer than max_length, for training and for evaluation.

    The others stay whole and in order. "Samples are filtered out if either chosen or rejected sequence exceeds this
    value": https://huggingface.co/docs/trl/reward_trainer
    """
    rows = [
        [[*row, tiny.END] for row in pair] for pair in policies.texts([(one - 1, other - 1) for one, other in PAIRS])
    ]
    texts = {
        name: [policies.text(pair[place]).strip() for pair in rows] for place, name in enumerate(("chosen", "rejected"))
    }
    data, size = ingredients.dataset(**texts), len(PAIRS)
    for limit in (LIMIT, 9):
        kept = [pair for pair in rows if max(map(len, pair)) <= limit]
        wanted = str([pair[place] for place in (0, 1) for pair in kept])
        given = {"per_device_train_batch_size": size, "per_device_eval_batch_size": size, "max_length": limit}
        trainer = alignment.create(
            ctx,
            "Reward",
            {**given, "remove_unused_columns": False},
            model=scored(ctx),
            train_dataset=data,
            eval_dataset=data,
        )
        for name, loader in (("trained", trainer.get_train_dataloader()), ("evaluated", trainer.get_eval_dataloader())):
            found = [list(each.ids) for each in batches.of_batch(next(iter(loader)))]
            yield equal(f"answers {name}, max_length={limit}", str(found), wanted)
            yield equal(f"pairs {name}, max_length={limit}", len(loader.dataset), len(kept))
