"""Collators pad, mask and flatten as their documentation says: each batch compared with rows by hand.

https://huggingface.co/docs/transformers/main_classes/data_collator
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.data import seen
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Collators"
PAD, END, OUT = 0, 2, ingredients.IGNORED
FEATURES = (
    {"input_ids": [5, 6, 7], "labels": [OUT, 6, 7]},
    {"input_ids": [8, 9, 10, 11, 12], "labels": [8, OUT, 10, 11, 12]},
)


def tokenizer(side: str, **names: str) -> Any:
    """The word-level tokeniser, padding on a side."""
    made = ingredients.tokenizer()
    made.padding_side = side
    for name, token in names.items():
        setattr(made, name, token)
    return made


def features() -> list[dict[str, Any]]:
    """Copies, as collators change what they get."""
    return [{name: list(values) for name, values in each.items()} for each in FEATURES]


@call(GROUP, phase=Phase.FORWARD)
def collator_pads_right(_ctx: Context) -> Iterator[Check]:
    """DataCollatorForSeq2Seq pads on the right to a multiple, with labels of -100 and a mask of 0."""
    from transformers import DataCollatorForSeq2Seq

    found = DataCollatorForSeq2Seq(tokenizer("right"), padding="longest", pad_to_multiple_of=4)(features())
    yield seen.same_rows("ids", found["input_ids"], [[5, 6, 7, *[PAD] * 5], [8, 9, 10, 11, 12, *[PAD] * 3]])
    yield seen.same_rows("labels", found["labels"], [[OUT, 6, 7, *[OUT] * 5], [8, OUT, 10, 11, 12, *[OUT] * 3]])
    yield seen.same_rows("mask", found["attention_mask"], [[1] * 3 + [0] * 5, [1] * 5 + [0] * 3])


@call(GROUP, phase=Phase.FORWARD)
def collator_pads_left(_ctx: Context) -> Iterator[Check]:
    """DataCollatorForSeq2Seq pads on the left if the tokeniser does, labels too."""
    from transformers import DataCollatorForSeq2Seq

    found = DataCollatorForSeq2Seq(tokenizer("left"), padding="longest")(features())
    yield seen.same_rows("ids", found["input_ids"], [[PAD, PAD, 5, 6, 7], [8, 9, 10, 11, 12]])
    yield seen.same_rows("labels", found["labels"], [[OUT, OUT, OUT, 6, 7], [8, OUT, 10, 11, 12]])
    yield seen.same_rows("mask", found["attention_mask"], [[0, 0, 1, 1, 1], [1] * 5])


@call(GROUP, phase=Phase.FORWARD)
def collator_language_modelling(_ctx: Context) -> Iterator[Check]:
    """DataCollatorForLanguageModeling(mlm=False) copies the ids into labels and ignores padding."""
    from transformers import DataCollatorForLanguageModeling

    rows = [{"input_ids": [5, 6, END]}, {"input_ids": [8, 9, 10, 11, END]}]
    found = DataCollatorForLanguageModeling(tokenizer("right"), mlm=False, pad_to_multiple_of=8)(rows)
    yield seen.same_rows("ids", found["input_ids"], [[5, 6, END, *[PAD] * 5], [8, 9, 10, 11, END, *[PAD] * 3]])
    yield seen.same_rows("labels", found["labels"], [[5, 6, END, *[OUT] * 5], [8, 9, 10, 11, END, *[OUT] * 3]])


@call(GROUP, phase=Phase.FORWARD)
def collator_end_token_as_padding(_ctx: Context) -> Iterator[Check]:
    """With pad_token = eos_token, DataCollatorForLanguageModeling masks the labels of end tokens: they are not learned.

    The documentation of ``mlm=False``: "the labels are the same as the inputs with the padding tokens ignored".
    """
    from transformers import DataCollatorForLanguageModeling

    rows = [{"input_ids": [5, END, 7]}, {"input_ids": [8, 9, 10, 11, END]}]
    found = DataCollatorForLanguageModeling(tokenizer("left", pad_token=ingredients.SPECIAL[END]), mlm=False)(rows)
    yield seen.same_rows("ids", found["input_ids"], [[END, END, 5, END, 7], [8, 9, 10, 11, END]])
    yield seen.same_rows("labels", found["labels"], [[OUT, OUT, 5, OUT, 7], [8, 9, 10, 11, OUT]])
    yield seen.same_rows("mask", found["attention_mask"], [[0, 0, 1, 1, 1], [1] * 5])


@call(GROUP, phase=Phase.FORWARD)
def collator_masked_words(_ctx: Context) -> Iterator[Check]:
    """DataCollatorForLanguageModeling masks words as BERT does: 80 % by the mask, 10 % by another word, 10 % not.

    https://arxiv.org/abs/1810.04805, section 3.1. Special tokens are neither masked nor learned.
    """
    import torch
    from transformers import DataCollatorForLanguageModeling

    words, mask, share, length = tokenizer("right"), 127, 0.3, 4000
    words.mask_token = f"w{mask}"
    torch.manual_seed(5)
    ids = torch.randint(10, 100, (length,)).tolist()
    ids[::50] = [END] * len(ids[::50])
    found = DataCollatorForLanguageModeling(words, mlm=True, mlm_probability=share)([{"input_ids": ids}])
    now, labels, before = found["input_ids"][0], found["labels"][0], torch.tensor(ids)
    learned, plain = labels != OUT, before != END
    yield equal("special tokens learned", int((learned & ~plain).sum()), 0)
    yield equal("labels other than the word", int((labels[learned] != before[learned]).sum()), 0)
    yield equal("words changed that are not learned", int((now[~learned] != before[~learned]).sum()), 0)
    for name, chosen, of, wanted in (
        ("share of learned words, off", learned[plain], plain, share),
        ("share of masks, off", now[learned] == mask, learned, 0.8),
        ("share of unchanged words, off", now[learned] == before[learned], learned, 0.1 + 0.1 / 128),
    ):
        deviation = (wanted * (1 - wanted) / int(of.sum())) ** 0.5
        yield at_most(name, abs(float(chosen.double().mean()) - wanted) / deviation, 4.0)


@call(GROUP, phase=Phase.FORWARD, requires=("flattening",))
def collator_flattens(_ctx: Context) -> Iterator[Check]:
    """DataCollatorWithFlattening makes one row of a batch, with positions that restart and each first label masked."""
    from transformers import DataCollatorWithFlattening

    found = DataCollatorWithFlattening()(features())
    yield seen.same_rows("ids", found["input_ids"], [[5, 6, 7, 8, 9, 10, 11, 12]])
    yield seen.same_rows("labels", found["labels"], [[OUT, 6, 7, OUT, OUT, 10, 11, 12]])
    yield seen.same_rows("positions", found["position_ids"], [[0, 1, 2, 0, 1, 2, 3, 4]])
    yield equal("a mask, which would hide the documents", "attention_mask" in found, bound=False)


@call(GROUP, phase=Phase.FORWARD, requires=("completion_collator",))
def collator_completion_only(_ctx: Context) -> Iterator[Check]:
    """TRL's DataCollatorForCompletionOnlyLM masks everything but what follows the response template.

    With an instruction template too, every answer of a conversation is learned, up to the next instruction.
    """
    from trl import DataCollatorForCompletionOnlyLM

    words, ask, answer = tokenizer("right"), 100, 101
    one = [{"input_ids": [ask, 5, 6, answer, 7, END]}, {"input_ids": [ask, 8, answer, 9, END]}]
    found = DataCollatorForCompletionOnlyLM([answer], tokenizer=words)(one)
    yield seen.same_rows("labels", found["labels"], [[*[OUT] * 4, 7, END], [*[OUT] * 3, 9, END, OUT]])
    turns = [{"input_ids": [ask, 5, answer, 6, 7, ask, 8, 9, answer, 10]}]
    found = DataCollatorForCompletionOnlyLM([answer], [ask], tokenizer=words)(turns)
    expected = [[*[OUT] * 3, 6, 7, *[OUT] * 4, 10]]
    yield seen.same_rows("labels", found["labels"], expected)
