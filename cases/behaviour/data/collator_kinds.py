"""Collators for choices, whole words and NumPy arrays, and the one that a Trainer without a tokeniser has.

https://huggingface.co/docs/transformers/main_classes/data_collator
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.data.collators import END, GROUP, OUT, PAD, features, tokenizer
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

MASK, SHARE, LENGTH = 127, 0.3, 6000
SIZES = (1, 3, 2, 1, 4)  # tokens of words, again and again


@call(GROUP, phase=Phase.FORWARD, requires=("multiple_choice",))
def collator_choices(_ctx: Context) -> Iterator[Check]:
    """DataCollatorForMultipleChoice pads all choices of all rows alike and stacks them by row, with a label each."""
    from transformers import DataCollatorForMultipleChoice

    rows = [
        {"input_ids": [[5, 6], [7, 8, 9]], "attention_mask": [[1, 1], [1, 1, 1]]},
        {"input_ids": [[10], [11, 12]], "attention_mask": [[1], [1, 1]]},
    ]
    for name in ("label", "labels"):
        given = [{**row, name: n} for row, n in zip(rows, (1, 0), strict=True)]
        found = DataCollatorForMultipleChoice(tokenizer("right"), pad_to_multiple_of=4)(given)
        ids = [[[5, 6, PAD, PAD], [7, 8, 9, PAD]], [[10, PAD, PAD, PAD], [11, 12, PAD, PAD]]]
        mask = [[[1, 1, 0, 0], [1, 1, 1, 0]], [[1, 0, 0, 0], [1, 1, 0, 0]]]
        yield equal(f"ids, {name}", str(found["input_ids"].tolist()), str(ids))
        yield equal(f"mask, {name}", str(found["attention_mask"].tolist()), str(mask))
        yield equal(f"labels, {name}", str(found["labels"].tolist()), str([1, 0]))


@call(GROUP, phase=Phase.FORWARD)
def collator_of_plain_rows(_ctx: Context) -> Iterator[Check]:
    """default_data_collator stacks fields, names label and label_ids "labels", and leaves text and missing fields out.

    Whole numbers become int64, other numbers float32; tensors and arrays are stacked as they are.
    """
    import numpy as np
    import torch
    from transformers import default_data_collator

    every: tuple[tuple[str, list[dict[str, Any]], dict[str, tuple[Any, str]]], ...] = (
        ("label", [{"label": 1}, {"label": 0}], {"labels": ([1, 0], "int64")}),
        ("numbers", [{"label": 0.5}, {"label": 2.0}], {"labels": ([0.5, 2.0], "float32")}),
        ("label_ids", [{"label_ids": [1, 2]}, {"label_ids": [3, 4]}], {"labels": ([[1, 2], [3, 4]], "int64")}),
        (
            "numbers of rows",
            [{"label_ids": [0.5, 2]}, {"label_ids": [3, 4]}],
            {"labels": ([[0.5, 2], [3, 4]], "float32")},
        ),
        ("a tensor", [{"label": torch.tensor(3)}, {"label": torch.tensor(4)}], {"labels": ([3, 4], "int64")}),
        ("others", [{"a": [1, 2], "t": "x"}, {"a": [3, 4], "t": "y"}], {"a": ([[1, 2], [3, 4]], "int64")}),
        ("nothing", [{"a": [1], "b": None}, {"a": [3], "b": None}], {"a": ([[1], [3]], "int64")}),
        (
            "arrays",
            [{"a": np.ones(2, np.float32)}, {"a": np.zeros(2, np.float32)}],
            {"a": ([[1, 1], [0, 0]], "float32")},
        ),
    )
    for title, rows, wanted in every:
        for kind in ("pt", "np"):
            if kind == "np" and title in ("a tensor", "numbers"):
                continue  # NumPy has its own default for numbers
            found = default_data_collator(rows, return_tensors=kind)
            names = " ".join(sorted(found))
            yield equal(f"fields, {title}, {kind}", names, " ".join(sorted(wanted)))
            for name, (values, dtype) in wanted.items():
                yield equal(f"{name}, {title}, {kind}", str(np.asarray(found[name]).tolist() == values), str(True))
                if kind == "pt":
                    yield equal(f"dtype of {name}, {title}", str(found[name].dtype), f"torch.{dtype}")


@call(GROUP, phase=Phase.FORWARD)
def collator_of_numpy_labels(_ctx: Context) -> Iterator[Check]:
    """default_data_collator makes NumPy's whole numbers int64, as it does Python's: float labels have another loss.

    A classifier takes float labels for those of several classes at once
    (https://huggingface.co/docs/transformers/main_classes/configuration, ``problem_type``).
    """
    import numpy as np
    from transformers import default_data_collator

    for kind in (np.int64, np.int32):
        labels = default_data_collator([{"label": kind(2)}, {"label": kind(0)}])["labels"]
        yield equal(f"labels of {kind.__name__}", f"{labels.tolist()} {labels.dtype}", "[2, 0] torch.int64")


@call(GROUP, phase=Phase.FORWARD)
def collator_arrays(_ctx: Context) -> Iterator[Check]:
    """return_tensors="np" gives arrays with the values that "pt" gives in tensors."""
    import numpy as np
    import transformers

    words = tokenizer("left")
    plain = [{"input_ids": row["input_ids"]} for row in features()]
    every = {
        "padding": (transformers.DataCollatorWithPadding(words), plain),
        "labels of tokens": (transformers.DataCollatorForTokenClassification(words), features()),
        "sequences": (transformers.DataCollatorForSeq2Seq(words), features()),
        "language modelling": (transformers.DataCollatorForLanguageModeling(words, mlm=False), plain),
    }
    for title, (collator, rows) in every.items():
        found = {}
        for kind in ("pt", "np"):
            collator.return_tensors = kind
            found[kind] = collator([{name: [*values] for name, values in row.items()} for row in rows])
        yield equal(f"fields, {title}", " ".join(sorted(found["np"])), " ".join(sorted(found["pt"])))
        for name, tensor in found["pt"].items():
            array = found["np"][name]
            yield equal(f"is an array, {name}, {title}", isinstance(array, np.ndarray), bound=True)
            yield equal(f"values, {name}, {title}", str(array.tolist()), str(tensor.tolist()))


def words_of(length: int) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """Tokens, their places in a text, where spaces are between words, and the number of each token's word."""
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    owners: list[int] = []
    place = word = 0
    while len(ids) < length:
        place += 1  # a space
        for _ in range(SIZES[word % len(SIZES)]):
            ids.append(10 + len(ids) % 90)
            offsets.append((place, place + 2))
            owners.append(word)
            place += 2
        word += 1
    return ids, offsets, owners


@call(GROUP, phase=Phase.FORWARD, requires=("whole_words",))
def collator_whole_words(_ctx: Context) -> Iterator[Check]:
    """whole_word_mask learns words as wholes: all tokens of a word or none, and as many words as the share says."""
    import numpy as np
    import torch
    from transformers import DataCollatorForLanguageModeling

    words = tokenizer("right")
    words.mask_token = f"w{MASK}"
    ids, offsets, owners = words_of(LENGTH)
    special = [0] * len(ids)
    for kind in ("pt", "np"):
        collator = DataCollatorForLanguageModeling(
            words, mlm_probability=SHARE, whole_word_mask=True, return_tensors=kind, seed=5
        )
        row = {"input_ids": [*ids], "offset_mapping": [*offsets], "special_tokens_mask": [*special]}
        found = collator([row])
        learned = torch.as_tensor(np.asarray(found["labels"]))[0] != OUT
        parts: dict[int, set[bool]] = {}
        for owner, each in zip(owners, learned.tolist(), strict=True):
            parts.setdefault(owner, set()).add(each)
        yield equal(f"words that are learned in part, {kind}", sum(len(each) > 1 for each in parts.values()), 0)
        share = sum(True in each for each in parts.values()) / len(parts)
        deviation = (SHARE * (1 - SHARE) / len(parts)) ** 0.5
        yield at_most(f"share of learned words, off, {kind}", abs(share - SHARE) / deviation, 4.0)
        yield equal(f"offsets in the batch, {kind}", "offset_mapping" in found, bound=False)


@call(GROUP, phase=Phase.FORWARD)
def collator_masked_arrays(_ctx: Context) -> Iterator[Check]:
    """With NumPy, DataCollatorForLanguageModeling masks words in the shares of BERT too, and no special tokens."""
    import numpy as np
    from transformers import DataCollatorForLanguageModeling

    words = tokenizer("right")
    words.mask_token = f"w{MASK}"
    np.random.seed(5)  # noqa: NPY002 - the collator draws from the global generator
    before = np.arange(LENGTH) * 7 % 90 + 10
    before[::50] = END
    collator = DataCollatorForLanguageModeling(words, mlm=True, mlm_probability=SHARE, return_tensors="np")
    found = collator([{"input_ids": before.tolist()}])
    now, labels = found["input_ids"][0], found["labels"][0]
    learned, plain = labels != OUT, before != END
    yield equal("special tokens learned", int((learned & ~plain).sum()), 0)
    yield equal("labels other than the word", int((labels[learned] != before[learned]).sum()), 0)
    yield equal("words changed that are not learned", int((now[~learned] != before[~learned]).sum()), 0)
    for name, chosen, of, wanted in (
        ("share of learned words, off", learned[plain], plain, SHARE),
        ("share of masks, off", now[learned] == MASK, learned, 0.8),
        ("share of unchanged words, off", now[learned] == before[learned], learned, 0.1 + 0.1 / 128),
    ):
        deviation = (wanted * (1 - wanted) / int(of.sum())) ** 0.5
        yield at_most(name, abs(float(chosen.mean()) - wanted) / deviation, 4.0)
