"""The loss functions of heads, called with the numbers of a step: cross entropies, squares and logistic losses.

https://huggingface.co/docs/transformers/main_classes/output
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.model import tiny
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Models"
NEEDS = ("loss_functions",)
ROWS, LENGTH, CLASSES, OUT = 2, 5, 7, -100
LABELS: Sequence[Sequence[int]] = ((1, OUT, 3, 4, 6), (0, 2, OUT, OUT, 5))
SAME = 2e-6  # of losses around 2
# The number of items of a step that accumulates, and how the mean alone is taken.
ITEMS: Sequence[int | None] = (None, 3, 11)


def logits(name: str, *shape: int) -> Any:
    return tiny.values(name, shape) * 4


def costs(scores: Any, labels: Sequence[int], out: int = OUT) -> list[float]:
    """The cross entropy of each row of scores that has a label, in float64."""
    found = []
    for row, label in zip(scores.double().tolist(), labels, strict=True):
        if label != out:
            largest = max(row)
            found.append(largest + math.log(sum(math.exp(each - largest) for each in row)) - row[label])
    return found


def mean(found: Sequence[float], items: int | None) -> float:
    """The sum divided by the items of a step, or by the labels that there are."""
    return sum(found) / (items or len(found))


def off(found: Any, wanted: float) -> float:
    return abs(float(found) - wanted)


def given(items: int | None) -> Iterator[dict[str, Any]]:
    """The items as Trainer gives them: not at all, a number, or a tensor."""
    import torch

    yield {"num_items_in_batch": items}
    if items is not None:
        yield {"num_items_in_batch": torch.tensor(items)}


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def losses_of_tokens(_ctx: Context) -> Iterator[Check]:
    """Losses of causal, masked and token heads are means of cross entropies, or sums divided by a step's items.

    Causal ones compare each token with the next, unless labels come shifted; labels of ignore_index are left out.
    """
    import torch
    from transformers.loss.loss_utils import ForCausalLMLoss, ForMaskedLMLoss, ForTokenClassification

    labels, config = torch.tensor(LABELS), SimpleNamespace(num_labels=CLASSES)
    flat = [label for row in LABELS for label in row]
    following = [label for row in LABELS for label in (*row[1:], OUT)]
    for dtype, items in itertools.product((torch.float32, torch.bfloat16), ITEMS):
        scores = logits("scores", ROWS, LENGTH, CLASSES).to(dtype)
        rows = scores.view(-1, CLASSES)
        for more in given(items):
            title = f"{dtype}, items {more}"
            wanted = mean(costs(rows, following), items)
            found = ForCausalLMLoss(scores, labels, CLASSES, **more)
            yield at_most(f"loss off, causal, {title}", off(found, wanted), SAME)
            yield equal(f"dtype of the loss, causal, {title}", str(found.dtype), "torch.float32")
            found = ForCausalLMLoss(scores, None, CLASSES, shift_labels=labels, **more)
            wanted = mean(costs(rows, flat), items)
            yield at_most(f"loss off, causal of shifted labels, {title}", off(found, wanted), SAME)
            found = ForMaskedLMLoss(scores, labels, CLASSES, **more)
            yield at_most(f"loss off, masked, {title}", off(found, wanted), SAME)
            found = ForTokenClassification(scores, labels, config, **more)
            yield at_most(f"loss off, of tokens, {title}", off(found, wanted), SAME)
            other = labels.masked_fill(labels == OUT, 2)
            twos = [2 if label == OUT else label for label in flat]
            found = ForMaskedLMLoss(scores, other, CLASSES, ignore_index=2, **more)
            wanted = mean(costs(rows, twos, 2), items)
            yield at_most(f"loss off, masked, ignore_index=2, {title}", off(found, wanted), SAME)
            found = ForCausalLMLoss(scores, None, CLASSES, shift_labels=other, ignore_index=2, **more)
            yield at_most(f"loss off, causal, ignore_index=2, {title}", off(found, wanted), SAME)


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def losses_of_rows(_ctx: Context) -> Iterator[Check]:
    """The loss of a sequence head follows problem_type, or what labels and their number say.

    One number is a regression, whole numbers are classes, other numbers are a logistic loss for each label.
    """
    import torch
    from transformers.loss.loss_utils import ForSequenceClassificationLoss

    scores, one = logits("rows", 4, CLASSES), logits("one", 4, 1)
    classes, single = torch.tensor([0, 6, 2, 2]), torch.tensor([0.5, -1.0, 2.0, 3.0])
    several = (tiny.values("several", (4, CLASSES)) > 0).float()
    square = sum((a - b) ** 2 for a, b in zip(one.double()[:, 0].tolist(), single.tolist(), strict=True)) / 4
    wide = float(((scores.double() - several.double()) ** 2).mean())
    entropy = mean(costs(scores, classes.tolist()), None)
    logistic = float((scores.double().exp().log1p() - several.double() * scores.double()).mean())
    regression, labelled, multiple = "regression", "single_label_classification", "multi_label_classification"
    for kind, pooled, labels, count, wanted, becomes in (
        (None, one, single, 1, square, regression),
        (None, one, single[:, None], 1, square, regression),
        (None, scores, classes, CLASSES, entropy, labelled),
        (None, scores, classes.int(), CLASSES, None, labelled),
        (None, scores, several, CLASSES, logistic, multiple),
        (regression, scores, several, CLASSES, wide, regression),
        (multiple, scores, several, CLASSES, logistic, multiple),
    ):
        config = SimpleNamespace(num_labels=count, problem_type=kind)
        title = f"{kind}, {count} labels of {str(labels.dtype).rpartition('.')[2]}, {labels.dim()} dimensions"
        if wanted is None:
            labels, wanted = labels.long(), entropy  # noqa: PLW2901 - torch takes cross entropies of long labels alone
        found = ForSequenceClassificationLoss(labels, pooled, config)
        yield at_most(f"loss off, {title}", off(found, wanted), SAME * max(1.0, wanted))
        yield equal(f"problem_type, {title}", config.problem_type, becomes)


@call(GROUP, phase=Phase.FORWARD, requires=NEEDS)
def losses_of_spans(_ctx: Context) -> Iterator[Check]:
    """The loss of a span is the mean of those of its start and its end; ends outside the row are left out."""
    import torch
    from transformers.loss.loss_utils import ForQuestionAnsweringLoss

    start, end = logits("start", 3, LENGTH), logits("end", 3, LENGTH)
    for begins, ends in (((0, 3, 4), (1, 4, 4)), ((0, 9, 4), (LENGTH, 4, 1)), ((2, 2, 2), (99, 99, 0))):
        wanted = [
            mean(costs(scores, [min(place, LENGTH) for place in places], LENGTH), None)
            for scores, places in ((start, begins), (end, ends))
        ]
        for shape in ((3,), (3, 1)):
            places = (torch.tensor(each).view(shape) for each in (begins, ends))
            found = ForQuestionAnsweringLoss(start, end, *places)
            yield at_most(f"loss off, {begins}, {ends}, {shape}", off(found, sum(wanted) / 2), SAME)
