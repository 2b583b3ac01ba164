"""The other arguments of collators, and the other collators of transformers: each batch compared with rows by hand.

https://huggingface.co/docs/transformers/main_classes/data_collator
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, ingredients
from cases.behaviour.data import seen
from cases.behaviour.data.collators import END, GROUP, OUT, PAD, features, tokenizer
from cases.model import architectures, tiny
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

MASK, LENGTH, SHARE = 127, 4000, 0.3
OTHER_PAD = -7
CLASSES = ({"input_ids": [5, 6, 7], "label": 2}, {"input_ids": [8, 9, 10, 11, 12], "label": 1})
DEVIATIONS = 4.0  # of a binomial share


def masked(*, seed: int = 5, **more: Any) -> tuple[Any, Any, Any]:
    """A long row of ordinary words: ids before and after masking, and labels."""
    import torch
    from transformers import DataCollatorForLanguageModeling

    words = tokenizer("right")
    words.mask_token = f"w{MASK}"
    torch.manual_seed(seed)
    ids = torch.randint(10, 100, (LENGTH,))
    made = DataCollatorForLanguageModeling(words, mlm=True, mlm_probability=SHARE, **more)
    found = made([{"input_ids": ids.tolist()}])
    return ids, found["input_ids"][0], found["labels"][0]


@call(GROUP, phase=Phase.FORWARD, requires=("mask_shares",))
def collator_mask_shares(_ctx: Context) -> Iterator[Check]:
    """mask_replace_prob and random_replace_prob set the shares of masks and of other words; the rest stays.

    https://huggingface.co/docs/transformers/main_classes/data_collator#transformers.DataCollatorForLanguageModeling
    """
    for masks, others in ((0.5, 0.2), (0.0, 1.0), (1.0, 0.0), (0.25, 0.75)):
        before, now, labels = masked(mask_replace_prob=masks, random_replace_prob=others)
        learned = labels != OUT
        stays = 1 - masks - others + others / tiny.VOCABULARY
        for name, chosen, wanted in (
            ("masks", now[learned] == MASK, masks + others / tiny.VOCABULARY),
            ("unchanged words", now[learned] == before[learned], stays),
        ):
            deviation = max(wanted * (1 - wanted) / int(learned.sum()), 1e-6) ** 0.5
            off = abs(float(chosen.double().mean()) - wanted) / deviation
            yield at_most(f"share of {name} off, {masks} and {others}", off, DEVIATIONS)
        yield equal(f"words changed that are not learned, {masks}", int((now != before)[~learned].sum()), 0)


@call(GROUP, phase=Phase.FORWARD, requires=("mask_seed",))
def collator_mask_seed(_ctx: Context) -> Iterator[Check]:
    """With its own seed, DataCollatorForLanguageModeling masks the same words whatever torch's generator does."""
    import torch
    from transformers import DataCollatorForLanguageModeling

    words = tokenizer("right")
    words.mask_token = f"w{MASK}"
    rows = [{"input_ids": [10 + number % 80 for number in range(LENGTH)]}]

    def two_batches(seed: int, state: int) -> list[Any]:
        torch.manual_seed(state)
        made = DataCollatorForLanguageModeling(words, mlm=True, mlm_probability=SHARE, seed=seed)
        return [made(rows)["input_ids"][0] for _ in range(2)]

    one, again, other = two_batches(3, 0), two_batches(3, 1), two_batches(4, 0)
    differ = [int((a != b).sum()) for a, b in zip(one, again, strict=True)]
    yield equal("tokens that differ with the same seed", str(differ), "[0, 0]")
    yield equal("batches that are the same with another seed", sum(map(torch.equal, one, other)), 0)
    yield equal("the second batch is masked as the first", torch.equal(*one), bound=False)


@call(GROUP, phase=Phase.FORWARD)
def collator_padded_labels(_ctx: Context) -> Iterator[Check]:
    """DataCollatorForSeq2Seq pads labels by label_pad_token_id on the tokeniser's side, apart from the inputs."""
    from transformers import DataCollatorForSeq2Seq

    for side, wanted in (("right", [OUT, 6, 7, -7, -7]), ("left", [-7, -7, OUT, 6, 7])):
        found = DataCollatorForSeq2Seq(tokenizer(side), label_pad_token_id=OTHER_PAD)(features())
        yield seen.same_rows(f"labels on the {side}", found["labels"], [wanted, [8, OUT, 10, 11, 12]])
    short = [{"input_ids": [5, 6, 7, 8], "labels": [9]}, {"input_ids": [10], "labels": [11, 12, 13]}]
    found = DataCollatorForSeq2Seq(tokenizer("right"))(short)
    yield seen.same_rows("labels of another length", found["labels"], [[9, OUT, OUT], [11, 12, 13]])
    yield seen.same_rows("ids of another length", found["input_ids"], [[5, 6, 7, 8], [10, PAD, PAD, PAD]])


@call(GROUP, phase=Phase.FORWARD)
def collator_labels_of_max_length(_ctx: Context) -> Iterator[Check]:
    """With padding="max_length", DataCollatorForSeq2Seq pads labels to max_length too, as it does inputs."""
    from transformers import DataCollatorForSeq2Seq

    whole = {"padding": "max_length", "max_length": 7, "label_pad_token_id": OTHER_PAD}
    found = DataCollatorForSeq2Seq(tokenizer("right"), **whole)(features())
    yield seen.same_rows("ids", found["input_ids"], [[5, 6, 7, *[PAD] * 4], [8, 9, 10, 11, 12, PAD, PAD]])
    yield seen.same_rows("labels", found["labels"], [[OUT, 6, 7, *[-7] * 4], [8, OUT, 10, 11, 12, -7, -7]])
    found = DataCollatorForSeq2Seq(tokenizer("left"), **whole)(features())
    yield seen.same_rows("labels on the left", found["labels"], [[*[-7] * 4, OUT, 6, 7], [-7, -7, 8, OUT, 10, 11, 12]])


@call(GROUP, phase=Phase.FORWARD, requires=("model_t5",))
def collator_decoder_inputs(ctx: Context) -> Iterator[Check]:
    """With a model, DataCollatorForSeq2Seq adds the decoder's inputs: labels behind the start token, padding for -100.

    https://arxiv.org/abs/1910.10683, section 2.1: the decoder gets what it should have said before.
    """
    from transformers import AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq

    chosen = Options().but(flow="load", method="full", model="t5")
    model = AutoModelForSeq2SeqLM.from_pretrained(architectures.checkpoint(chosen, ctx.cache))
    rows = [{"input_ids": [5, 6], "labels": [7, 8, END]}, {"input_ids": [9], "labels": [10, END]}]
    found = DataCollatorForSeq2Seq(tokenizer("right"), model=model)(rows)
    yield seen.same_rows("labels", found["labels"], [[7, 8, END], [10, END, OUT]])
    yield seen.same_rows("inputs of the decoder", found["decoder_input_ids"], [[PAD, 7, 8], [PAD, 10, END]])


@call(GROUP, phase=Phase.FORWARD)
def collator_token_classes(_ctx: Context) -> Iterator[Check]:
    """DataCollatorForTokenClassification pads the classes of tokens on the tokeniser's side, by -100 or another."""
    from transformers import DataCollatorForTokenClassification

    found = DataCollatorForTokenClassification(tokenizer("right"), pad_to_multiple_of=4)(features())
    wanted = [[OUT, 6, 7, *[OUT] * 5], [8, OUT, 10, 11, 12, *[OUT] * 3]]
    yield seen.same_rows("labels", found["labels"], wanted)
    yield seen.same_rows("mask", found["attention_mask"], [[1] * 3 + [0] * 5, [1] * 5 + [0] * 3])
    found = DataCollatorForTokenClassification(tokenizer("left"), label_pad_token_id=OTHER_PAD)(features())
    yield seen.same_rows("labels on the left", found["labels"], [[-7, -7, OUT, 6, 7], [8, OUT, 10, 11, 12]])


@call(GROUP, phase=Phase.FORWARD)
def collator_row_labels(_ctx: Context) -> Iterator[Check]:
    """DataCollatorWithPadding and default_data_collator hand one label per row to the model as "labels"."""
    import torch
    from transformers import DataCollatorWithPadding, default_data_collator

    found = DataCollatorWithPadding(tokenizer("right"))([dict(each) for each in CLASSES])
    yield equal("labels", str(found["labels"].tolist()), "[2, 1]")
    yield seen.same_rows("ids", found["input_ids"], [[5, 6, 7, PAD, PAD], [8, 9, 10, 11, 12]])
    yield seen.same_rows("mask", found["attention_mask"], [[1, 1, 1, 0, 0], [1] * 5])
    same = [{"input_ids": [4, 5], "label": 1}, {"input_ids": [6, 7], "label": 0}]
    found = default_data_collator(same)
    yield equal("labels by default", str((found["labels"].tolist(), found["labels"].dtype)), "([1, 0], torch.int64)")
    scores = [{"input_ids": torch.tensor([4, 5]), "label": 0.5}, {"input_ids": torch.tensor([6, 7]), "label": 2.0}]
    found = default_data_collator(scores)
    yield equal("scores", str((found["labels"].tolist(), found["labels"].dtype)), "([0.5, 2.0], torch.float32)")
    yield seen.same_rows("ids by default", found["input_ids"], [[4, 5], [6, 7]])
    several = [{"input_ids": [4], "label_ids": [1, 0]}, {"input_ids": [5], "label_ids": [0, 3]}]
    yield seen.same_rows("several labels", default_data_collator(several)["labels"], [[1, 0], [0, 3]])


@call(GROUP, phase=Phase.FORWARD)
def collator_keeps_special_masks(_ctx: Context) -> Iterator[Check]:
    """DataCollatorForLanguageModeling masks no token that special_tokens_mask names, ordinary words included."""
    import torch
    from transformers import DataCollatorForLanguageModeling

    words = tokenizer("right")
    words.mask_token = f"w{MASK}"
    torch.manual_seed(7)
    ids = torch.randint(10, 100, (LENGTH,)).tolist()
    special = [int(number % 3 == 0) for number in range(LENGTH)]
    made = DataCollatorForLanguageModeling(words, mlm=True, mlm_probability=SHARE)
    found = made([{"input_ids": ids, "special_tokens_mask": special}])
    learned, kept = found["labels"][0] != ingredients.IGNORED, torch.tensor(special).bool()
    yield equal("named tokens that are learned", int((learned & kept).sum()), 0)
    deviation = (SHARE * (1 - SHARE) / int((~kept).sum())) ** 0.5
    share = float(learned[~kept].double().mean())
    yield at_most("share of learned words off", abs(share - SHARE) / deviation, DEVIATIONS)
