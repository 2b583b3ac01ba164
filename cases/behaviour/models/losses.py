"""The losses that models compute: labels, shifts, ignored tokens, shares of a larger batch, and balanced experts."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import architectures
from cases.model.data import IGNORED, Rows
from cases.reference import models, twin
from cases.reference.models import mixtral
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Losses of models"
WEIGHT = 0.5  # of the loss that balances experts; as published it is too small to show in gradients
ITEMS = 100  # learned tokens of a step of which the batch is a part
ROUNDING = 1e-5  # relative: of a mean of some tens of terms in float32


def known(*, decoders: bool = True) -> list[str]:
    """The models that this version has."""
    import transformers

    return [
        name
        for name, spec in architectures.SPECS.items()
        if hasattr(transformers, spec.named[1]) and (decoders or not spec.encoder_decoder)
    ]


def balanced(ctx: Context, kind: str, changes: Mapping[str, Any]) -> Iterator[Check]:
    """Compare the loss with the auxiliary one, that one, and all gradients, the router's included."""
    import torch

    stated = {"output_router_logits": True, "router_aux_loss_coef": WEIGHT, **changes}
    folder, rows = Variant("mixtral", stated).written(ctx, kind), building.rows(kind)
    network, loaded = building.network(folder), building.loaded(ctx, folder)
    expected = models.logits(network, building.batch(network, rows))
    layers = range(network.config["num_hidden_layers"])
    scores = [building.recorded(network, f"model.layers.{number}.block_sparse_moe.gate") for number in layers]
    auxiliary = mixtral.balance_loss(torch.stack(scores), network.config["num_experts_per_tok"], rows.real)
    wanted = building.loss(network, expected, rows.labels) + WEIGHT * auxiliary
    wanted.backward()
    found = building.trained(loaded, rows)
    yield at_most(f"auxiliary loss off, {kind}", abs(float(found.aux_loss / auxiliary) - 1), building.bound("loss"))
    yield at_most(f"loss off, {kind}", abs(float(found.loss / wanted) - 1), building.bound("loss"))
    yield building.gradients(kind, loaded, network)


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral",))
def balanced_experts(ctx: Context) -> Iterator[Check]:
    """With output_router_logits=True, the loss of Mixtral has the auxiliary loss of all real tokens.

    https://huggingface.co/docs/transformers/model_doc/mixtral, https://arxiv.org/abs/2101.03961, equations 4 to 6;
    padding on either side chooses no experts.
    """
    for kind in ("plain", "padded_right", "padded_left"):
        yield from balanced(ctx, kind, {})


@call(GROUP, phase=Phase.BACKWARD, requires=("model_mixtral",))
def balanced_experts_of_others(ctx: Context) -> Iterator[Check]:
    """The auxiliary loss counts each of the chosen experts, whether a token chooses one or three of six."""
    yield from balanced(ctx, "padded_left", {"num_experts_per_tok": 1})
    yield from balanced(ctx, "padded_right", {"num_local_experts": 6, "num_experts_per_tok": 3})


@call(GROUP, phase=Phase.BACKWARD)
def items_of_a_step(ctx: Context) -> Iterator[Check]:
    """num_items_in_batch makes a loss the share of a step that has as many learned tokens, in logits and gradients.

    https://huggingface.co/blog/gradient_accumulation
    """
    import torch

    for model in known():
        folder, rows = Variant(model).written(ctx, "items"), building.rows("prompt_masked")
        loaded, network = building.loaded(ctx, folder, attn_implementation="eager"), building.network(folder)
        accepted = inspect.signature(type(loaded).forward).parameters.values()
        if model == "t5" or not any(each.kind is each.VAR_KEYWORD for each in accepted):
            continue  # the Trainer scales the losses of such models itself
        learned = (rows.labels[:, 1:] != IGNORED).sum()
        expected = models.logits(network, building.batch(network, rows))
        wanted = building.loss(network, expected, rows.labels) * learned / ITEMS
        wanted.backward()
        for name, items in (("number", ITEMS), ("tensor", torch.tensor(ITEMS))):
            loaded.zero_grad()
            found = building.trained(loaded, rows, num_items_in_batch=items)
            off = abs(float(found.loss.detach()) / float(wanted) - 1)
            yield at_most(f"loss off, {model}, {name}", off, building.bound("loss"))
            yield building.gradients(f"{model}, {name}", loaded, network)


def labelled(kind: str) -> Rows:
    """Rows of which the first, the last, every other or all labels of a row are ignored."""
    rows = building.rows()
    labels = rows.labels.clone()
    where = {
        "first": (slice(None), slice(0, 1)),
        "last": (slice(None), slice(-1, None)),
        "every other": (slice(None), slice(None, None, 2)),
        "a whole row": (slice(1, 2), slice(None)),
        "all but one": (slice(None), slice(None, -1)),
        "none": (slice(0), slice(None)),
    }
    labels[where[kind]] = IGNORED
    return Rows(rows.ids, labels)


@call(GROUP, phase=Phase.FORWARD)
def ignored_labels(ctx: Context) -> Iterator[Check]:
    """Labels of -100 are not learned, wherever they are; only an encoder-decoder learns the first label.

    https://huggingface.co/docs/transformers/model_doc/llama#transformers.LlamaForCausalLM.forward
    """
    import torch

    for model in known():
        folder = Variant(model).written(ctx, "labels")
        loaded, network = building.loaded(ctx, folder, attn_implementation="eager"), building.network(folder)
        for kind in ("none", "first", "last", "every other", "a whole row", "all but one"):
            rows = labelled(kind)
            with torch.no_grad():
                wanted = building.loss(network, models.logits(network, building.batch(network, rows)), rows.labels)
                found = loaded(**rows.to(loaded.device).arguments).loss
            yield at_most(f"loss off, {model}, {kind}", abs(float(found / wanted) - 1), building.bound("loss"))


def in_half_precision(ctx: Context, model: str) -> Iterator[Check]:
    """Compare the loss with that of the returned logits."""
    import torch

    folder, rows = Variant(model).written(ctx, "half"), building.rows("prompt_masked")
    for dtype in (torch.bfloat16, torch.float16):
        loaded = building.loaded(ctx, folder, attn_implementation="eager").to(dtype)
        with torch.no_grad():
            found = loaded(**rows.to(loaded.device).arguments)
        name = f"{model}, {str(dtype).rpartition('.')[2]}"
        wanted = float(twin.cross_entropy(found.logits.double().cpu(), rows.labels[:, 1:]))
        yield equal(f"dtype of the loss, {name}", str(found.loss.dtype), "torch.float32")
        yield at_most(f"loss off its logits, {name}", abs(float(found.loss) / wanted - 1), ROUNDING)


@call(GROUP, phase=Phase.FORWARD)
def loss_in_half_precision(ctx: Context) -> Iterator[Check]:
    """A model in half precision computes its loss in float32 from its logits.

    Not T5: its published code computes the loss in the dtype of the logits.
    """
    for model in known(decoders=False):
        if model != "gpt2":
            yield from in_half_precision(ctx, model)


@call(GROUP, phase=Phase.FORWARD)
def loss_in_half_precision_gpt2(ctx: Context) -> Iterator[Check]:
    """GPT-2 in half precision computes its loss in float32 too; transformers 4.47 uses the logits' dtype."""
    yield from in_half_precision(ctx, "gpt2")
