"""Adapters merged into the base: one of several, several at once, scaled, and taken out again.

Merging adds ``scaling * B A`` to each weight (https://arxiv.org/abs/2106.09685, section 4.1).
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.adapters import lora_reference as reference
from cases.behaviour.adapters.lora_reference import FIRST, MERGED, NEAR, SECOND, Adapter
from cases.model import tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative, worst_tensor
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

MERGING = "Merging one of several adapters"
ONCE = 2 * UNIT_ROUNDOFF["fp32"]  # relative error of a weight after one addition
TWICE = 4 * UNIT_ROUNDOFF["fp32"]  # after adding and subtracting


def weights_off(model: Any, base: reference.Base, *updates: Any) -> Check:
    """The weights inside the model against the base with updates."""
    found = reference.base_weights(model, base)
    return at_most("weights off", worst_tensor(found, base.weights(*updates)), ONCE)


def unloaded(model: Any, base: reference.Base, *updates: Any) -> Iterator[Check]:
    """A model without adapters against the base with updates."""
    yield equal("adapter parameters left", sum(tiny.is_adapter(name) for name, _ in model.named_parameters()), 0)
    yield weights_off(model, base, *updates)
    yield at_most("logits off", relative(reference.logits(model.eval()), base.logits(*updates)), MERGED)


@call(MERGING, phase=Phase.MERGE)
def merge_inactive_adapter(ctx: Context) -> Iterator[Check]:
    """merge_adapter(adapter_names=...) merges an adapter that is not active, and only that."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    model.merge_adapter(adapter_names=["second"])
    yield weights_off(model, base, base.of(SECOND))
    model.unmerge_adapter()
    yield at_most("unmerged weights off", worst_tensor(reference.base_weights(model, base), base.tensors), TWICE)
    yield at_most("logits off", relative(reference.logits(model), base.logits(base.of(FIRST))), MERGED)


@call(MERGING, phase=Phase.MERGE)
def merge_one_after_another(ctx: Context) -> Iterator[Check]:
    """Adapters merged one after another add up, and unmerging takes both out."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    model.merge_adapter(adapter_names=["second"])
    model.merge_adapter(adapter_names=["first"])
    yield weights_off(model, base, base.of(FIRST), base.of(SECOND))
    both = base.logits(base.of(FIRST), base.of(SECOND))
    yield at_most("logits off", relative(reference.logits(model), both), MERGED)
    model.unmerge_adapter()
    yield at_most("unmerged weights off", worst_tensor(reference.base_weights(model, base), base.tensors), TWICE)


@call(MERGING, phase=Phase.MERGE)
def merge_again(ctx: Context) -> Iterator[Check]:
    """Merging a merged adapter again warns and changes no bit of the weights."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    model.merge_adapter()
    before = reference.state(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.merge_adapter()
    yield equal("changed", reference.written(reference.changed(before, reference.state(model))), "none")
    yield at_least("warnings of merged adapters", sum("merged" in str(each.message) for each in caught), 1)
    yield weights_off(model, base, base.of(FIRST))


@call(MERGING, phase=Phase.MERGE)
def unmerge_exact_sums(ctx: Context) -> Iterator[Check]:
    """Unmerging restores every bit of the weights if no sum was rounded."""
    import torch

    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    sides = {}
    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if tiny.is_adapter(name):  # few bits each, so that every product and sum fits into float32
                sides[name] = (tiny.values(name, tuple(parameter.shape)) * 8).round() / 8
                parameter.copy_(sides[name])
    before = reference.state(model)
    model.merge_adapter(adapter_names=["second"])
    wide = {name: side.double() for name, side in sides.items()}
    expected = base.weights(base.update("second", base.placed(SECOND), wide))
    yield at_most("weights off", worst_tensor(reference.base_weights(model, base), expected), 0.0)
    model.unmerge_adapter()
    yield equal("changed", reference.written(reference.changed(before, reference.state(model))), "none")


@call(MERGING, phase=Phase.MERGE)
def unload_with_inactive_adapter(ctx: Context) -> Iterator[Check]:
    """merge_and_unload(adapter_names=...) leaves a model with this adapter in its weights, whichever is active."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    yield from unloaded(model.merge_and_unload(adapter_names=["second"]), base, base.of(SECOND))


@call(MERGING, phase=Phase.MERGE)
def unload_with_active_adapter(ctx: Context) -> Iterator[Check]:
    """merge_and_unload merges the active adapter of two, and nothing of the other."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    model.set_adapter("second")
    yield from unloaded(model.merge_and_unload(), base, base.of(SECOND))


@call(MERGING, phase=Phase.MERGE)
def unload_with_both_adapters(ctx: Context) -> Iterator[Check]:
    """merge_and_unload of two named adapters leaves their sum in the weights."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    merged = model.merge_and_unload(adapter_names=["first", "second"], safe_merge=True)
    yield from unloaded(merged, base, base.of(FIRST), base.of(SECOND))


@call(MERGING, phase=Phase.MERGE)
def unload_without_merging(ctx: Context) -> Iterator[Check]:
    """Without a merge, unload returns the base."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND)
    yield from unloaded(model.unload(), base)


@call(MERGING, phase=Phase.MERGE)
def merge_embeddings(ctx: Context) -> Iterator[Check]:
    """Merging adapters of the embeddings adds their product to the rows of the tokens."""
    first = Adapter(name="first", rank=4, alpha=12, targets=("embed_tokens", "q_proj"))
    second = Adapter(name="second", rank=8, alpha=4, targets=("embed_tokens",))
    base, model = reference.read(ctx), reference.adapted(ctx, first, second).eval()
    model.merge_adapter(adapter_names=["second", "first"])
    yield weights_off(model, base, base.of(first), base.of(second))
    model.unmerge_adapter()
    yield at_most("unmerged weights off", worst_tensor(reference.base_weights(model, base), base.tensors), TWICE)
    yield from unloaded(model.merge_and_unload(adapter_names=["second"]), base, base.of(second))


@call(MERGING, phase=Phase.MERGE)
def merge_transposed_layers(ctx: Context) -> Iterator[Check]:
    """Merging adapters of GPT-2's Conv1D layers adds the transposed product."""
    more = {"fan_in_fan_out": True}
    first = Adapter(name="first", rank=4, alpha=12, targets=("c_attn", "c_fc"), more=more)
    second = Adapter(name="second", rank=8, alpha=4, targets=("c_attn", "mlp.c_proj"), more=more)
    base, model = reference.read(ctx, "gpt2"), reference.adapted(ctx, first, second, model="gpt2").eval()
    model.merge_adapter(adapter_names=["second", "first"])
    yield weights_off(model, base, base.of(first), base.of(second))
    model.unmerge_adapter()
    yield at_most("unmerged weights off", worst_tensor(reference.base_weights(model, base), base.tensors), TWICE)
    yield from unloaded(model.merge_and_unload(adapter_names=["second"], safe_merge=True), base, base.of(second))


def refused(ctx: Context, adapter: Adapter, part: str, model: str = "llama") -> Iterator[Check]:
    """A safe merge of an adapter with one NaN raises ValueError, and leaves the weights as they were."""
    import torch

    made = reference.adapted(ctx, adapter, model=model)
    name, broken = [(name, parameter) for name, parameter in tiny.named(made) if part in name][-1]
    with torch.no_grad():
        broken.view(-1)[-1] = float("nan")
    weight, error = f"{name.partition('.lora_')[0]}.weight", ""
    before = reference.state(made)[weight]
    try:
        made.merge_and_unload(safe_merge=True)
    except ValueError as raised:
        error = str(raised)
    yield equal("error", "NaNs detected" in error, bound=True)
    yield equal("the weight is as before", reference.state(made)[weight].equal(before), bound=True)


@call(MERGING, phase=Phase.MERGE)
def refuse_broken_linear(ctx: Context) -> Iterator[Check]:
    """A safe merge refuses an adapter with one NaN."""
    yield from refused(ctx, FIRST, ".lora_B.")


@call(MERGING, phase=Phase.MERGE)
def refuse_broken_transposed(ctx: Context) -> Iterator[Check]:
    """A safe merge refuses an adapter of Conv1D layers with one NaN."""
    adapter = Adapter(name="first", rank=4, alpha=12, targets=("c_attn",), more={"fan_in_fan_out": True})
    yield from refused(ctx, adapter, ".lora_A.", "gpt2")


@call(MERGING, phase=Phase.MERGE)
def refuse_broken_embeddings(ctx: Context) -> Iterator[Check]:
    """A safe merge refuses an adapter of the embeddings with one NaN."""
    yield from refused(ctx, Adapter(name="first", rank=4, alpha=12, targets=("embed_tokens",)), ".lora_embedding_A.")


@call(MERGING, phase=Phase.MERGE, requires=("lora_bias",))
def merge_bias_of_rslora(ctx: Context) -> Iterator[Check]:
    """Merging scales an adapter's bias by alpha / √r with use_rslora, and unmerging takes it out."""
    import torch

    adapter = Adapter(name="first", rank=8, alpha=4, more={"use_rslora": True, "lora_bias": True})
    base, model = reference.read(ctx, "qwen"), reference.adapted(ctx, adapter, SECOND, model="qwen").eval()
    update = base.of(adapter)
    with torch.no_grad():
        for name, parameter in tiny.named(model):
            if name.endswith(".lora_B.first.bias"):
                parameter.copy_(tiny.values(name, tuple(parameter.shape)))
                layer = name.partition(".lora_B")[0]
                update[f"{layer}.bias"] = adapter.scaling * parameter.double().cpu()
    yield at_most("logits off", relative(reference.logits(model), base.logits(update)), NEAR)
    model.merge_adapter()
    yield weights_off(model, base, update)
    model.unmerge_adapter()
    yield at_most("unmerged weights off", worst_tensor(reference.base_weights(model, base), base.tensors), TWICE)
    yield from unloaded(model.merge_and_unload(safe_merge=True), base, update)


@call(MERGING, phase=Phase.MERGE)
def switch_merged_adapter(ctx: Context) -> Iterator[Check]:
    """set_adapter on a model with a merged adapter takes that one out first."""
    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    model.merge_adapter()
    model.set_adapter("second")
    yield at_most("logits off", relative(reference.logits(model), base.logits(base.of(SECOND))), MERGED)
    yield at_most("weights off", worst_tensor(reference.base_weights(model, base), base.tensors), TWICE)


def layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "lora_A") and hasattr(module, "set_scale")]


def scaled(ctx: Context, adapter: Adapter) -> Iterator[Check]:
    """The logits with an adapter scaled, scaled again, scaled back, and merged."""
    base, model = reference.read(ctx), reference.adapted(ctx, adapter, SECOND).eval()
    update = base.of(adapter)
    for method, arguments, factor in (
        ("set_scale", ("first", 0.5), 0.5),
        ("scale_layer", (3.0,), 1.5),
        ("unscale_layer", (2.0,), 0.75),
        ("unscale_layer", (), 1.0),
        ("set_scale", ("first", -0.25), -0.25),
    ):
        for layer in layers(model):
            getattr(layer, method)(*arguments)
        expected = base.logits({name: factor * added for name, added in update.items()})
        yield at_most(f"logits scaled by {factor}", relative(reference.logits(model), expected), NEAR)
    merged = model.merge_and_unload()
    yield weights_off(merged, base, {name: -0.25 * added for name, added in update.items()})


@call(MERGING, phase=Phase.FORWARD)
def scale_adapter(ctx: Context) -> Iterator[Check]:
    """set_scale, scale_layer and unscale_layer multiply an adapter's alpha / r, and a merge uses the result."""
    yield from scaled(ctx, FIRST)


@call(MERGING, phase=Phase.FORWARD)
def scale_rslora_adapter(ctx: Context) -> Iterator[Check]:
    """set_scale, scale_layer and unscale_layer multiply the alpha / √r of use_rslora."""
    yield from scaled(ctx, Adapter(name="first", rank=4, alpha=5, more={"use_rslora": True}))


@call(MERGING, phase=Phase.FORWARD, requires=("rescale_adapter_scale",))
def rescale_for_a_while(ctx: Context) -> Iterator[Check]:
    """rescale_adapter_scale multiplies the active adapter inside its context, and restores it after an exception."""
    from peft.helpers import rescale_adapter_scale

    base, model = reference.read(ctx), reference.adapted(ctx, FIRST, SECOND).eval()
    update = base.of(FIRST)
    with contextlib.suppress(KeyError), rescale_adapter_scale(model, multiplier=0.25):
        expected = base.logits({name: 0.25 * added for name, added in update.items()})
        yield at_most("logits scaled by 0.25", relative(reference.logits(model), expected), NEAR)
        raise KeyError
    yield at_most("logits off", relative(reference.logits(model), base.logits(update)), NEAR)
    model.set_adapter("second")
    yield at_most("logits off", relative(reference.logits(model), base.logits(base.of(SECOND))), NEAR)
