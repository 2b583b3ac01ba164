"""Outputs of classifiers as tuples, behind a prefix of keys and values, and the weights of new heads."""

from __future__ import annotations

import inspect
import math
from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.behaviour.models.inputs_of_classes import PREFIXES, class_of, ids
from cases.behaviour.models.returned_fields import apart
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Models"
SAME = 1e-5
HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
PREFIX = 4  # tokens before those of a call
LABELS = 24
RANGE, FACTOR = 0.3, 2.0  # deviations of new weights
SURE = 6.0  # standard errors


def new(ctx: Context, model: str, head: str, **changes: Any) -> Any:
    """A classifier of a checkpoint without a head, which is drawn; None if there is no such class."""
    import torch

    kind = class_of(PREFIXES[model], head)
    if kind is None:
        return None
    folder = ctx.kept / f"{model}-{head}"
    if not folder.exists():
        folder = Variant(model, changes).written(ctx, head)
    torch.manual_seed(0)
    more = {"pad_token_id": tiny.PADDING, "num_labels": LABELS if head != "ForQuestionAnswering" else 2}
    return kind.from_pretrained(folder, attn_implementation="eager", **more).eval()


def tuples(ctx: Context, heads: tuple[str, ...]) -> Iterator[Check]:
    import torch

    for model, head in product(PREFIXES, heads):
        made = new(ctx, model, head)
        if made is None:
            continue
        for asked in ((), ("hidden_states",), ("hidden_states", "attentions")):
            more: dict[str, Any] = {f"output_{name}": True for name in asked}
            more |= {"use_cache": True} if takes(made, "use_cache") else {}
            with torch.no_grad():
                found = made(input_ids=ids(), **more, return_dict=True)
                parts = made(input_ids=ids(), **more, return_dict=False)
            wanted = [value for name, value in found.items() if name != "past_key_values"]
            given = [each for each in parts if not is_cache(each)]
            title = f"{PREFIXES[model]}{head}, {' and '.join(asked) or 'nothing'}"
            yield equal(f"parts of the tuple, {title}", len(given), len(wanted))
            yield at_most(f"tuple apart, {title}", apart(tuple(given), tuple(wanted)), 0.0)
            counts = [len(found[each]) for each in asked]
            layers = made.config.num_hidden_layers
            expected = [layers + (each == "hidden_states") for each in asked]
            yield equal(f"layers of the object, {title}", str(counts), str(expected))


@call(GROUP, phase=Phase.FORWARD)
def tuples_of_classifiers(ctx: Context) -> Iterator[Check]:
    """Classifiers of sequences and tokens return the same fields in a tuple as in an object, in their order.

    With states and attentions, with states alone, and with neither; a cache in between may be left out.
    """
    yield from tuples(ctx, ("ForSequenceClassification", "ForTokenClassification"))


@call(GROUP, phase=Phase.FORWARD)
def tuples_of_spans(ctx: Context) -> Iterator[Check]:
    """Models of questions return the same fields in a tuple as in an object, in their order.

    transformers 4.47 takes the third part of the inner tuple for the first of the states.
    """
    yield from tuples(ctx, ("ForQuestionAnswering",))


def takes(model: Any, name: str) -> bool:
    known = inspect.signature(model.forward).parameters
    return name in known or "kwargs" in known


def is_cache(part: Any) -> bool:
    """Whether a part of an output is a cache, as an object or as pairs of keys and values."""
    return hasattr(part, "get_seq_length") or (isinstance(part, tuple) and isinstance(part[0], tuple))


@call(GROUP, phase=Phase.FORWARD)
def classifiers_behind_prefixes(ctx: Context) -> Iterator[Check]:
    """Classifiers behind keys and values of earlier tokens have the scores of the whole text, as with prefix tuning.

    The mask covers both; past_key_values is what PEFT's prefixes are handed over as.
    """
    import torch
    from transformers import DynamicCache

    tokens = ids()
    for model in (each for each in PREFIXES if each != "gemma"):  # early versions have caches of their own for it
        for head in HEADS:
            made = new(ctx, model, head)
            if made is None or not takes(made, "past_key_values"):
                continue
            with torch.no_grad():
                cache = made.base_model(input_ids=tokens[:, :PREFIX], use_cache=True).past_key_values
                cache = DynamicCache.from_legacy_cache(cache) if isinstance(cache, tuple) else cache
                behind = {"past_key_values": cache, "attention_mask": torch.ones_like(tokens)}
                found = made(input_ids=tokens[:, PREFIX:], **behind)
                whole, alone = made(input_ids=tokens), made(input_ids=tokens[:, PREFIX:])
            for name in ("logits", "start_logits", "end_logits"):
                if name not in found:
                    continue
                one, other, without = (each[name] for each in (found, whole, alone))
                other = other if head == "ForSequenceClassification" else other[:, PREFIX:]
                title = f"{name} of {PREFIXES[model]}{head}"
                yield at_most(f"off, {title}", tolerance.relative(one, other), building.bound("logits"))
                yield at_least(f"what the prefix changes, {title}", tolerance.relative(without, other), 1e-3)


def drawn(weight: Any, deviation: float) -> float:
    """The distance of weights from their normal distribution, in standard errors."""
    number = weight.numel()
    spread = abs(float(weight.std()) / deviation - 1) * math.sqrt(2 * number)
    return max(spread, abs(float(weight.mean())) / deviation * math.sqrt(number))


@call(GROUP, phase=Phase.LOAD)
def new_classifiers(ctx: Context) -> Iterator[Check]:
    """Heads that a checkpoint lacks are drawn with initializer_range around zero, biases are zero; others are read."""
    for model in PREFIXES:
        for head in HEADS:
            made = new(ctx, model, head, initializer_range=RANGE)
            if made is None:
                continue
            title = f"{PREFIXES[model]}{head}"
            own = {name: each for name, each in made.named_parameters() if not name.startswith(made.base_model_prefix)}
            weights = [each.detach() for each in own.values() if each.dim() > 1]
            yield equal(f"matrices of the head, {title}", len(weights), 1)
            yield at_most(f"off its distribution, {title}", max(drawn(each, RANGE) for each in weights), SURE)
            biases = sum(int((each != 0).sum()) for each in own.values() if each.dim() == 1)
            yield equal(f"biases other than zero, {title}", biases, 0)


@call(GROUP, phase=Phase.LOAD)
def new_sequence_classifiers_t5(ctx: Context) -> Iterator[Check]:
    """T5's new classifier of sequences is drawn with initializer_factor times the width to the power of -0.5.

    So are its dense layer and its projection to labels, as in the code of T5ClassificationHead; biases are zero.
    """
    import torch
    from transformers import T5ForSequenceClassification

    for factor in (1.0, FACTOR):
        folder = Variant("t5", {"initializer_factor": factor}).written(ctx, f"head {factor:g}")
        torch.manual_seed(0)
        made = T5ForSequenceClassification.from_pretrained(folder, num_labels=LABELS)
        for name in ("dense", "out_proj"):
            layer = getattr(made.classification_head, name)
            off = drawn(layer.weight.detach(), factor * made.config.d_model**-0.5)
            yield at_most(f"off its distribution, {name}, factor {factor:g}", off, SURE)
            yield equal(f"biases other than zero, {name}, factor {factor:g}", int((layer.bias != 0).sum()), 0)
