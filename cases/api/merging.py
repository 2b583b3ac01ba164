"""Merging: the merged model must give the adapter's logits, and nothing else may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.model import architectures, tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

MERGING = "Merging"
COMBINING = "Combining adapters"
BF16 = 16 * UNIT_ROUNDOFF["bf16"]  # logits after each weight was rounded once, see cases.bands
FP32 = 1e-5  # the same in float32, through kernels that add in another order
CYCLES = 100


@call(MERGING, phase=Phase.MERGE)
def merge_twice(ctx: Context) -> Iterator[Check]:
    """Merging an adapter a second time changes nothing."""
    model = models.adapted(models.loaded(ctx, dtype="fp32"))
    model.merge_adapter()
    once = models.logits(model)
    model.merge_adapter()
    yield at_most("logits after a second merge", relative(models.logits(model), once), 1e-6)


@call(MERGING, phase=Phase.MERGE)
def merge_and_then_unload(ctx: Context) -> Iterator[Check]:
    """merge_and_unload does not merge a merged adapter a second time."""
    model = models.adapted(models.loaded(ctx, dtype="fp32"))
    on_top = models.logits(model)
    model.merge_adapter()
    merged = model.merge_and_unload()
    yield at_most("logits after merge_adapter and merge_and_unload", relative(models.logits(merged), on_top), FP32)


def merged_on(model: Any) -> Iterator[Check]:
    model = models.adapted(model)
    on_top = models.logits(model, training=True)
    merged = model.merge_and_unload()
    yield at_most("merged logits", relative(models.logits(merged, training=True), on_top), BF16)


@call(MERGING, phase=Phase.MERGE, requires=("4bit", "4bit_loading"))
def merge_into_four_bit(ctx: Context) -> Iterator[Check]:
    """An adapter merged into a 4-bit base gives the same logits as before the merge."""
    yield from merged_on(models.loaded(ctx, "nf4"))


@call(MERGING, phase=Phase.MERGE, requires=("4bit", "4bit_loading"))
def merge_into_four_bit_after_inference(ctx: Context) -> Iterator[Check]:
    """Merging into a 4-bit base works the same after inference as before."""
    model = models.adapted(models.loaded(ctx, "nf4"))
    before = models.logits(model.merge_and_unload(), training=True)
    model = models.adapted(models.loaded(ctx, "nf4"))
    models.logits(model)
    after = models.logits(model.merge_and_unload(), training=True)
    yield at_most("merged logits", relative(after, before), BF16)


@call(MERGING, phase=Phase.MERGE, requires=("8bit", "8bit_loading"))
def merge_into_eight_bit(ctx: Context) -> Iterator[Check]:
    """An adapter merged into an 8-bit base gives the same logits as before the merge."""
    yield from merged_on(models.loaded(ctx, "int8"))


@call(MERGING, phase=Phase.MERGE, requires=("4bit", "4bit_loading"))
def merge_after_dequantising(ctx: Context) -> Iterator[Check]:
    """An adapter merged into the dequantised base gives the same logits as before the merge."""
    yield from merged_on(models.loaded(ctx, "nf4").dequantize())


def small_update(ctx: Context, dtype: str) -> Iterator[Check]:
    """The share that remains of an update of a thousandth of the weights' size, measured in float32."""
    import torch

    base = models.logits(models.loaded(ctx, dtype="fp32"))
    model = models.adapted(models.loaded(ctx, dtype=dtype))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B." in name:
                parameter.mul_(2**-10)
    whole = models.adapted(models.loaded(ctx, dtype="fp32"))
    whole.load_state_dict({n: p.float() for n, p in model.state_dict().items()})
    wanted = models.logits(whole) - base
    got = models.logits(model.merge_and_unload().float()) - base
    yield at_most("what merging changed in the update's effect", relative(got, wanted), 0.1)


@call(MERGING, phase=Phase.MERGE)
def merge_small_update_bf16(ctx: Context) -> Iterator[Check]:
    """Merging into bfloat16 weights keeps a small update."""
    yield from small_update(ctx, "bf16")


@call(MERGING, phase=Phase.MERGE)
def merge_small_update_fp32(ctx: Context) -> Iterator[Check]:
    """Merging into float32 weights keeps a small update."""
    yield from small_update(ctx, "fp32")


def head(ctx: Context, *, tied: bool) -> Iterator[Check]:
    folder = models.published(ctx, models.variant(tie_word_embeddings=tied), "fp32")
    model = models.adapted(models.loaded(ctx, dtype="fp32", folder=folder), target_modules=["lm_head"])
    on_top, before = models.logits(model), model.get_input_embeddings().weight.detach().clone()
    merged = model.merge_and_unload()
    yield at_most("what merging the head changed in the embeddings", relative(embeddings(merged), before), 0.0)
    yield at_most("merged logits", relative(models.logits(merged), on_top), FP32)


def embeddings(model: Any) -> Any:
    return model.get_input_embeddings().weight.detach()


@call(MERGING, phase=Phase.MERGE)
def merge_tied_head(ctx: Context) -> Iterator[Check]:
    """Merging an adapter of the head does not change the embeddings if they share one tensor."""
    yield from head(ctx, tied=True)


@call(MERGING, phase=Phase.MERGE)
def merge_untied_head(ctx: Context) -> Iterator[Check]:
    """Merging an adapter of the head does not change the embeddings."""
    yield from head(ctx, tied=False)


def drift(ctx: Context, dtype: str) -> Iterator[Check]:
    """The error of the base weights after many cycles, in units of the error after one."""
    import torch

    model = models.adapted(models.loaded(ctx, dtype=dtype))
    with torch.no_grad():
        models.projection(model).lora_B["default"].weight.mul_(0.9)  # the start values alone add up without rounding
    weight = models.projection(model).get_base_layer().weight
    before, after = weight.detach().clone(), []
    for _ in range(CYCLES):
        model.merge_adapter()
        model.unmerge_adapter()
        after.append(relative(models.projection(model).get_base_layer().weight.detach(), before))
    once = max(after[0], UNIT_ROUNDOFF[dtype])
    yield at_most("error of the base weights after one cycle", after[0], 4 * UNIT_ROUNDOFF[dtype])
    yield at_most(f"the same after {CYCLES} cycles, in units of it", after[-1] / once, 4.0)


@call(MERGING, phase=Phase.MERGE)
def merge_unmerge_drift_bf16(ctx: Context) -> Iterator[Check]:
    """Merging and unmerging a hundred times does not change bfloat16 weights."""
    yield from drift(ctx, "bf16")


@call(MERGING, phase=Phase.MERGE)
def merge_unmerge_drift_fp32(ctx: Context) -> Iterator[Check]:
    """Merging and unmerging a hundred times does not change float32 weights."""
    yield from drift(ctx, "fp32")


@call(MERGING, phase=Phase.MERGE, requires=("dora",))
def merge_one_dora(ctx: Context) -> Iterator[Check]:
    """A merged DoRA adapter gives the same logits as before the merge."""
    model = models.adapted(models.loaded(ctx, dtype="fp32"), use_dora=True)
    on_top = models.logits(model)
    yield at_most("merged logits", relative(models.logits(model.merge_and_unload()), on_top), FP32)


@call(MERGING, phase=Phase.MERGE, requires=("dora",))
def merge_two_dora(ctx: Context) -> Iterator[Check]:
    """Two merged DoRA adapters give the same logits as before the merge."""
    model = models.with_second(models.adapted(models.loaded(ctx, dtype="fp32"), use_dora=True), use_dora=True)
    model.base_model.set_adapter(["default", "second"])
    on_top = models.logits(model)
    yield at_most("merged logits", relative(models.logits(model.merge_and_unload()), on_top), FP32)


def with_bias(ctx: Context, quant: str, **other: Any) -> Any:
    """An adapter with a bias on layers that have a bias."""
    folder = models.published(ctx, models.variant(attention_bias=True))
    model = models.loaded(ctx, quant, folder=folder)
    return models.adapted(model, lora_bias=True, target_modules=["q_proj", "v_proj"], **other)


def merged_bias(ctx: Context, quant: str, **other: Any) -> Iterator[Check]:
    import torch

    model = with_bias(ctx, quant, **other)
    layer = models.projection(model)
    adapter, scaling = layer.lora_B["default"].bias.detach().float(), layer.scaling["default"]
    before, on_top = layer.get_base_layer().bias.detach().float(), models.logits(model, training=True)
    with torch.no_grad():
        merged = model.merge_and_unload()
    after = models.projection(merged).bias.detach().float()
    yield at_most("merged bias", relative(after, before + scaling * adapter), 2 * UNIT_ROUNDOFF["bf16"])
    if quant != "nf4":  # merging into 4 bits is coarse, see merge_into_four_bit
        yield at_most("merged logits", relative(models.logits(merged), on_top), BF16)


@call(MERGING, phase=Phase.MERGE, requires=("lora_bias",))
def merge_bias(ctx: Context) -> Iterator[Check]:
    """Merging scales an adapter's bias like its other weights."""
    yield from merged_bias(ctx, "none")


@call(MERGING, phase=Phase.MERGE, requires=("lora_bias", "4bit", "4bit_loading"))
def merge_bias_nf4(ctx: Context) -> Iterator[Check]:
    """Merging into a 4-bit layer scales an adapter's bias like its other weights."""
    yield from merged_bias(ctx, "nf4")


@call(MERGING, phase=Phase.MERGE, requires=("lora_bias", "8bit", "8bit_loading"))
def merge_bias_int8(ctx: Context) -> Iterator[Check]:
    """Merging into an 8-bit layer scales an adapter's bias like its other weights."""
    yield from merged_bias(ctx, "int8")


@call(MERGING, phase=Phase.MERGE, requires=("lora_bias", "8bit", "8bit_loading"))
def merge_bias_int8_scaled_by_one(ctx: Context) -> Iterator[Check]:
    """With lora_alpha equal to r, merging into an 8-bit layer adds an adapter's bias unscaled."""
    yield from merged_bias(ctx, "int8", lora_alpha=tiny.RANK)


@call(MERGING, phase=Phase.MERGE, requires=("lora_bias", "4bit", "4bit_loading"))
def safe_merge_bias_nf4(ctx: Context) -> Iterator[Check]:
    """A safe merge of an adapter with a bias into a 4-bit layer succeeds."""
    merged = with_bias(ctx, "nf4").merge_and_unload(safe_merge=True)
    yield equal("layers that still have an adapter", sum("lora" in name for name, _ in merged.named_modules()), 0)


@call(MERGING, phase=Phase.MERGE, requires=("lora_bias", "8bit", "8bit_loading"))
def safe_merge_bias_int8(ctx: Context) -> Iterator[Check]:
    """A safe merge of an adapter with a bias into an 8-bit layer succeeds."""
    merged = with_bias(ctx, "int8").merge_and_unload(safe_merge=True)
    yield equal("layers that still have an adapter", sum("lora" in name for name, _ in merged.named_modules()), 0)


@call(MERGING, phase=Phase.MERGE, requires=("4bit", "4bit_loading"))
def safe_merge_nf4(ctx: Context) -> Iterator[Check]:
    """A safe merge of an adapter without a bias into a 4-bit layer succeeds."""
    merged = models.adapted(models.loaded(ctx, "nf4")).merge_and_unload(safe_merge=True)
    yield equal("layers that still have an adapter", sum("lora" in name for name, _ in merged.named_modules()), 0)


@call(MERGING, phase=Phase.MERGE, requires=("lora_bias", "4bit", "4bit_loading"))
def safe_merge_refused_nf4(ctx: Context) -> Iterator[Check]:
    """A safe merge that finds a broken bias does not change the 4-bit layer."""
    import torch

    model = with_bias(ctx, "nf4")
    layer = models.projection(model)
    with torch.no_grad():
        layer.lora_B["default"].bias.fill_(float("nan"))
    before, refused = layer.get_base_layer().weight.data.clone(), False
    try:
        layer.merge(safe_merge=True)
    except (ValueError, RuntimeError):
        refused = True
    yield equal("a broken adapter is refused", refused, True)  # noqa: FBT003 - the value measured
    same = torch.equal(layer.get_base_layer().weight.data, before)
    yield equal("the weight is as before", same, True)  # noqa: FBT003


def weighted(ctx: Context, **other: Any) -> Iterator[Check]:
    """The combination's outputs at one layer against the weighted sum of the adapters' own."""
    import torch

    model = models.with_second(models.adapted(models.loaded(ctx, dtype="fp32"), **other), **other)
    model.add_weighted_adapter(["default", "second"], [0.25, 0.5], "sum", combination_type="cat")
    layer, inputs = models.projection(model), tiny.values("inputs", (4, tiny.HIDDEN)).to(ctx.place.device)
    with torch.no_grad():
        base = layer.get_base_layer()(inputs)
        found = {}
        for name in ("default", "second", "sum"):
            model.set_adapter(name)
            found[name] = layer(inputs) - base
    expected = 0.25 * found["default"] + 0.5 * found["second"]
    yield at_most("combined adapter", relative(found["sum"], expected), FP32)


@call(COMBINING, phase=Phase.ADAPT)
def weighted_lora(ctx: Context) -> Iterator[Check]:
    """Two adapters combined are their weighted sum."""
    yield from weighted(ctx)


@call(COMBINING, phase=Phase.ADAPT)
def weighted_rslora(ctx: Context) -> Iterator[Check]:
    """Two adapters with rank-stabilised scaling combined are their weighted sum."""
    yield from weighted(ctx, use_rslora=True)


@call(COMBINING, phase=Phase.ADAPT, requires=("lora_bias",))
def weighted_bias(ctx: Context) -> Iterator[Check]:
    """Two adapters with biases combined are their weighted sum."""
    yield from weighted(ctx, lora_bias=True)


def offloaded(ctx: Context, folder: Path, where: Any) -> Any:
    """The model with its second layer on another device, as ``device_map="auto"`` leaves it when memory is short."""
    from transformers import AutoModelForCausalLM

    parts = ("model.embed_tokens", "model.layers.0", "model.norm", "model.rotary_emb", "lm_head")
    devices = {**dict.fromkeys(parts, ctx.place.device), "model.layers.1": where}
    return AutoModelForCausalLM.from_pretrained(folder, device_map=devices, offload_folder=str(ctx.kept / "offload"))


def merged_and_saved(ctx: Context, folder: Path, where: Any) -> Iterator[Check]:
    from peft import PeftModel

    adapter = models.saved_adapter(ctx)
    on_top = models.logits(models.adapted(models.loaded(ctx, dtype="fp32")))
    base = offloaded(ctx, folder, where)
    model = PeftModel.from_pretrained(base, adapter, offload_folder=str(ctx.kept / "again"))
    model.merge_and_unload().save_pretrained(ctx.kept / "merged")
    merged = models.loaded(ctx, dtype="fp32", folder=ctx.kept / "merged")
    yield at_most("logits of the reloaded merged model", relative(models.logits(merged), on_top), FP32)


@call(MERGING, phase=Phase.MERGE)
def merge_offloaded(ctx: Context) -> Iterator[Check]:
    """A model with a layer on disk can be merged and saved completely."""
    yield from merged_and_saved(ctx, architectures.plain_checkpoint(ctx.cache), "disk")


@call(MERGING, phase=Phase.MERGE)
def merge_offloaded_pickle(ctx: Context) -> Iterator[Check]:
    """A model published as a pickle file, with a layer on disk, can be merged and saved completely."""
    yield from merged_and_saved(ctx, models.pickled(ctx), "disk")


@call(MERGING, phase=Phase.MERGE)
def merge_on_one_device(ctx: Context) -> Iterator[Check]:
    """A model on one device can be merged and saved completely."""
    yield from merged_and_saved(ctx, architectures.plain_checkpoint(ctx.cache), ctx.place.device)
