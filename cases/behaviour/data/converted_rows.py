"""TRL's conversions of rows: pairs into single rows, implicit prompts, other names of roles, chat templates.

https://huggingface.co/docs/trl/dataset_formats
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

    Row = dict[str, Any]

GROUP = "Rows of TRL"


def turns(*texts: str) -> list[Row]:
    """Messages by the user and the assistant in turn."""
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def rows(one: Any) -> Any:
    """A dataset of some rows."""
    from datasets import Dataset

    return Dataset.from_list(one)


PAIRS: list[Row] = [
    {"prompt": "The sky is", "chosen": " blue.", "rejected": " green.", "weight": 2},
    {"prompt": "The sun is", "chosen": " in the sky.", "rejected": " in the sea.", "weight": 3},
]


@call(GROUP, phase=Phase.LOAD)
def unpaired_rows(ctx: Context) -> Iterator[Check]:
    """unpair_preference_dataset gives each answer its prompt and its label; rows without pairs stay as they are."""
    from trl.data_utils import maybe_unpair_preference_dataset, unpair_preference_dataset

    del ctx
    whole = [{key: value for key, value in row.items() if key != "weight"} for row in PAIRS]
    implicit = [{side: turns("Sky?", row[side]) for side in ("chosen", "rejected")} for row in whole]
    for title, given in (("with prompts", whole), ("with implicit prompts", implicit)):
        shared = [{key: row[key] for key in row if key == "prompt"} for row in given]
        wanted = [
            {**each, "completion": row[side], "label": side == "chosen"}
            for side in ("chosen", "rejected")
            for row, each in zip(given, shared, strict=True)
        ]
        for name, function in (("always", unpair_preference_dataset), ("if paired", maybe_unpair_preference_dataset)):
            found = sorted(map(ordered, function(rows(given))))
            yield equal(f"rows, {title}, {name}", str(found), str(sorted(map(ordered, wanted))))
    single = [{"prompt": "The sky is", "completion": " blue.", "label": True}]
    found = maybe_unpair_preference_dataset(rows(single))
    yield equal("rows without pairs", str([ordered(row) for row in found]), str([ordered(row) for row in single]))


def ordered(row: Row) -> str:
    """A row as one text, whatever the order of its keys."""
    return json.dumps(row, sort_keys=True)


def common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """The length of the longest common start."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return length


def split(chosen: Any, rejected: Any) -> Row:
    """The common start as the prompt; a space at its end belongs to the answers."""
    length = common(chosen, rejected)
    if length and chosen[length - 1] == " ":
        length -= 1
    return {"prompt": chosen[:length], "chosen": chosen[length:], "rejected": rejected[length:]}


def extracted(titled: dict[str, tuple[Any, Any]]) -> Iterator[Check]:
    from trl.data_utils import extract_prompt

    for title, (chosen, rejected) in titled.items():
        found = extract_prompt({"chosen": chosen, "rejected": rejected})
        yield equal(f"parts, {title}", ordered(found), ordered(split(chosen, rejected)))


@call(GROUP, phase=Phase.LOAD)
def implicit_prompts(ctx: Context) -> Iterator[Check]:
    """extract_prompt takes the common start of both answers, of texts without the space at its end, and of turns."""
    from trl.data_utils import maybe_extract_prompt

    del ctx
    texts = {
        "text": ("The sky is blue.", "The sky is green."),
        "text without a space": ("The sky isn't", "The sky is."),
        "turns": (turns("Sky?", "Blue."), turns("Sky?", "Green.")),
        "several turns": (turns("Hello", "Hi", "Sky?", "Blue."), turns("Hello", "Hi", "Sky?", "Green.")),
        "a long answer": (turns("Sky?", "Blue.", "Sure?", "Yes."), turns("Sky?", "Green.")),
    }
    yield from extracted(texts)
    stays: list[Row] = [
        {"prompt": "The sky is", "chosen": " blue.", "rejected": " green."},
        {"prompt": turns("Sky?"), "chosen": turns("", "Blue.")[1:], "rejected": turns("", "Green.")[1:]},
        {"prompt": "The sky is", "completion": " blue."},
        {"messages": turns("Sky?", "Blue.")},
    ]
    for row in stays:
        yield equal("row with a prompt", ordered(maybe_extract_prompt(copy.deepcopy(row))), ordered(row))
    chosen, rejected = texts["turns"]
    found = maybe_extract_prompt({"prompt": "Sky?", "chosen": chosen, "rejected": rejected})
    yield equal("turns with a text as the prompt", ordered(found), ordered(split(chosen, rejected)))


@call(GROUP, phase=Phase.LOAD)
def implicit_prompts_at_the_ends(ctx: Context) -> Iterator[Check]:
    """extract_prompt finds the longest common start also if one answer continues the other, or nothing is common."""
    del ctx
    yield from extracted(
        {
            "one continues the other": ("The sky is blue", "The sky is blue today"),
            "one turn more": (turns("Sky?", "Blue."), turns("Sky?", "Blue.", "Sure?", "Yes.")),
            "nothing common": ("Yes, it is. ", "No, it is not."),
        }
    )


@call(GROUP, phase=Phase.LOAD, requires=("chatml_conversion",))
def converted_messages(ctx: Context) -> Iterator[Check]:
    """maybe_convert_to_chatml renames from, value and conversations, and leaves other rows as they are."""
    from trl.data_utils import maybe_convert_to_chatml

    del ctx
    wanted = turns("Sky?", "Blue.")
    given = [{"from": each["role"], "value": each["content"]} for each in wanted]
    for key in ("prompt", "completion", "chosen", "rejected", "messages", "conversations"):
        row = maybe_convert_to_chatml({key: copy.deepcopy(given), "other": 1})
        new = "messages" if key == "conversations" else key
        yield equal(f"row, {key}", ordered(row), ordered({new: wanted, "other": 1}))
        same = maybe_convert_to_chatml({new: copy.deepcopy(wanted), "text": "from"})
        yield equal(f"row with roles, {key}", ordered(same), ordered({new: wanted, "text": "from"}))


@call(GROUP, phase=Phase.LOAD)
def recognised_messages(ctx: Context) -> Iterator[Check]:
    """is_conversational tells messages from texts in every column that TRL documents."""
    from trl.data_utils import is_conversational

    del ctx
    for key in ("prompt", "completion", "chosen", "rejected", "messages"):
        found = [is_conversational({key: value}) for value in (turns("Sky?", "Blue."), "Sky?")]
        yield equal(f"conversational, {key}", str(found), str([True, False]))
    yield equal("conversational, another column", str(is_conversational({"text": "Sky?"})), "False")
