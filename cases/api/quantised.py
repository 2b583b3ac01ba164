"""Quantised models outside training: loading, saving, moving and dequantising them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.apply import compat
from cases.model import architectures, tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

LOADING = "Loading quantised models"
SAVING = "Saving quantised models"
DEQUANTISING = "Dequantising"
FOUR, EIGHT = ("4bit", "4bit_loading"), ("8bit", "8bit_loading")
BF16 = UNIT_ROUNDOFF["bf16"]


def linears(model: Any) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__ in ("Linear4bit", "Linear8bitLt")]


def reloaded(ctx: Context, quant: str, storage: str = "uint8", *, used: bool = False) -> Iterator[Check]:
    """Save a quantised model and reload it."""
    from cases.apply.build import load

    model = load(models.chosen(quant, storage=storage), ctx.place, ctx.cache)
    expected = models.logits(model, training=not used)
    model.save_pretrained(ctx.kept / "saved")
    again = from_saved(ctx)
    yield equal("quantised layers", len(linears(again)), tiny.LAYERS * len(tiny.LINEARS))
    yield at_most("reloaded logits", relative(models.logits(again, training=not used), expected), BF16)


def from_saved(ctx: Context, **other: Any) -> Any:
    from transformers import AutoModelForCausalLM

    arguments = {**compat.load_arguments(models.chosen(), "cpu"), **other}
    return AutoModelForCausalLM.from_pretrained(ctx.kept / "saved", device_map={"": ctx.place.device}, **arguments)


@call(SAVING, phase=Phase.RELOAD, requires=FOUR)
def reload_nf4(ctx: Context) -> Iterator[Check]:
    """A reloaded 4-bit checkpoint gives the logits of the saved model."""
    yield from reloaded(ctx, "nf4")


@call(SAVING, phase=Phase.RELOAD, requires=FOUR)
def reload_nf4_after_inference(ctx: Context) -> Iterator[Check]:
    """Inference with a 4-bit model does not change what save_pretrained writes."""
    yield from reloaded(ctx, "nf4", used=True)


@call(SAVING, phase=Phase.RELOAD, requires=FOUR)
def reload_nf4_bf16_storage(ctx: Context) -> Iterator[Check]:
    """A reloaded 4-bit checkpoint with bfloat16 storage gives the logits of the saved model."""
    yield from reloaded(ctx, "nf4", "bf16")


@call(SAVING, phase=Phase.RELOAD, requires=EIGHT)
def reload_int8(ctx: Context) -> Iterator[Check]:
    """A reloaded 8-bit checkpoint gives the logits of the saved model."""
    yield from reloaded(ctx, "int8")


@call(SAVING, phase=Phase.RELOAD, requires=FOUR)
def compute_dtype_of_prequantised(ctx: Context) -> Iterator[Check]:
    """The layers of a 4-bit checkpoint use the requested compute dtype."""
    import torch
    from transformers import BitsAndBytesConfig

    models.loaded(ctx, "nf4").save_pretrained(ctx.kept / "saved")
    asked = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    model = from_saved(ctx, quantization_config=asked)
    found = {compat.dtype_name(layer.compute_dtype) for layer in linears(model)}
    yield equal("compute dtype", "+".join(sorted(found)), "fp32")


@call(LOADING, phase=Phase.LOAD, requires=FOUR)
def compute_dtype_when_quantised(ctx: Context) -> Iterator[Check]:
    """The layers of a model that is quantised on loading use the requested compute dtype."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    asked = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    arguments = {**compat.load_arguments(models.chosen(), "cpu"), "quantization_config": asked}
    model = AutoModelForCausalLM.from_pretrained(
        architectures.plain_checkpoint(ctx.cache), device_map={"": "cpu"}, **arguments
    )
    found = {compat.dtype_name(layer.compute_dtype) for layer in linears(model)}
    yield equal("compute dtype", "+".join(sorted(found)), "fp32")


@call(SAVING, phase=Phase.RELOAD, requires=FOUR)
def quant_state_dtype(ctx: Context) -> Iterator[Check]:
    """A 4-bit bfloat16 checkpoint loaded as float16 dequantises to float16."""
    import torch

    models.loaded(ctx, "nf4").save_pretrained(ctx.kept / "saved")
    name = next(iter(compat.load_arguments(models.chosen(), "cpu")))
    model = from_saved(ctx, **{name: torch.float16})
    found = {compat.dtype_name(layer.weight.quant_state.dtype) for layer in linears(model)}
    yield equal("dtype of the model", compat.dtype_name(model.model.norm.weight.dtype), "fp16")
    yield equal("dtype that weights dequantise to", "+".join(sorted(found)), "fp16")


@call(SAVING, phase=Phase.RELOAD, requires=FOUR)
def state_dict_strict(ctx: Context) -> Iterator[Check]:
    """A 4-bit model loads its own state dict."""
    model = models.loaded(ctx, "nf4")
    expected = models.logits(model, training=True)
    model.load_state_dict(model.state_dict())
    yield at_most("logits", relative(models.logits(model, training=True), expected), 0.0)


def into_another(ctx: Context, **arguments: Any) -> Iterator[Check]:
    """Load the state dict of a 4-bit model into one that was quantised from other weights."""
    import torch

    model = models.loaded(ctx, "nf4")
    other = models.loaded(ctx, dtype="bf16")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2)
    other.save_pretrained(ctx.kept / "other")
    another = models.loaded(ctx, "nf4", folder=ctx.kept / "other")
    another.load_state_dict(model.state_dict(), **arguments)
    expected = models.logits(model, training=True)
    yield at_most("logits", relative(models.logits(another, training=True), expected), BF16)


@call(SAVING, phase=Phase.RELOAD, requires=FOUR)
def state_dict_lenient(ctx: Context) -> Iterator[Check]:
    """A 4-bit state dict loaded with strict=False restores the model it came from."""
    yield from into_another(ctx, strict=False)


@call(DEQUANTISING, phase=Phase.MERGE, requires=FOUR)
def move_nf4(ctx: Context) -> Iterator[Check]:
    """A 4-bit model can be moved to the device it is already on."""
    model = models.loaded(ctx, "nf4")
    expected = models.logits(model)
    yield at_most("logits", relative(models.logits(model.to(ctx.place.device)), expected), 0.0)


@call(DEQUANTISING, phase=Phase.MERGE, requires=EIGHT)
def move_int8(ctx: Context) -> Iterator[Check]:
    """An 8-bit model can be moved to the device it is already on."""
    model = models.loaded(ctx, "int8")
    expected = models.logits(model)
    yield at_most("logits", relative(models.logits(model.to(ctx.place.device)), expected), 0.0)


@call(DEQUANTISING, phase=Phase.RELOAD, requires=FOUR)
def dequantise_and_save(ctx: Context) -> Iterator[Check]:
    """A dequantised model can be saved and loaded as an unquantised one."""
    from transformers import AutoModelForCausalLM

    model = models.loaded(ctx, "nf4").dequantize()
    expected = models.logits(model)
    model.save_pretrained(ctx.kept / "plain")
    again = AutoModelForCausalLM.from_pretrained(ctx.kept / "plain", **compat.load_arguments(models.chosen(), "cpu"))
    yield equal("quantised layers", len(linears(again)), 0)
    yield at_most("reloaded logits", relative(models.logits(again.to(ctx.place.device)), expected), BF16)


@call(DEQUANTISING, phase=Phase.RELOAD, requires=FOUR)
def dequantise_and_forget(ctx: Context) -> Iterator[Check]:
    """A dequantised model without quantization_config can be saved and loaded as an unquantised one."""
    from transformers import AutoModelForCausalLM

    model = models.loaded(ctx, "nf4").dequantize()
    expected = models.logits(model)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(ctx.kept / "plain")
    again = AutoModelForCausalLM.from_pretrained(ctx.kept / "plain", **compat.load_arguments(models.chosen(), "cpu"))
    yield equal("quantised layers", len(linears(again)), 0)
    yield at_most("reloaded logits", relative(models.logits(again.to(ctx.place.device)), expected), BF16)


@call(DEQUANTISING, phase=Phase.MERGE, requires=FOUR)
def dequantise_after_inference(ctx: Context) -> Iterator[Check]:
    """Inference with a 4-bit model does not change the weights it dequantises to."""
    expected = models.logits(models.loaded(ctx, "nf4").dequantize())
    model = models.loaded(ctx, "nf4")
    models.logits(model)
    yield at_most("logits", relative(models.logits(model.dequantize()), expected), BF16)


@call(DEQUANTISING, phase=Phase.MERGE, requires=FOUR)
def dequantise_and_cast(ctx: Context) -> Iterator[Check]:
    """A dequantised model can be cast to another dtype."""
    import torch

    model = models.loaded(ctx, "nf4").dequantize().to(torch.float32)
    yield equal("dtype", compat.dtype_name(models.projection(model).weight.dtype), "fp32")


@call(DEQUANTISING, phase=Phase.MERGE, requires=FOUR)
def dequantise_reset_and_cast(ctx: Context) -> Iterator[Check]:
    """A dequantised model with quantization_method reset can be cast to another dtype."""
    import torch

    model = models.loaded(ctx, "nf4").dequantize()
    model.quantization_method = None
    yield equal("dtype", compat.dtype_name(models.projection(model.to(torch.float32)).weight.dtype), "fp32")


@call(LOADING, phase=Phase.LOAD, requires=FOUR)
def load_in_4bit_config(ctx: Context) -> Iterator[Check]:
    """from_pretrained accepts a BitsAndBytesConfig."""
    yield equal("quantised layers", len(linears(models.loaded(ctx, "nf4"))), tiny.LAYERS * len(tiny.LINEARS))


@call(LOADING, phase=Phase.LOAD, requires=FOUR)
def load_in_4bit_without_map(ctx: Context) -> Iterator[Check]:
    """from_pretrained quantises a model without a device_map."""
    from transformers import AutoModelForCausalLM

    asked = compat.load_arguments(models.chosen("nf4"), "cpu")
    del asked["device_map"]
    model = AutoModelForCausalLM.from_pretrained(architectures.plain_checkpoint(ctx.cache), **asked)
    yield at_most("logits", relative(models.logits(model), models.logits(models.loaded(ctx, "nf4"))), BF16)


@call(LOADING, phase=Phase.FORWARD, requires=("bitsandbytes_4bit",))
def four_bit_never_moved(ctx: Context) -> Iterator[Check]:
    """A 4-bit layer works without a move to its device."""
    import torch
    from bitsandbytes.nn import Linear4bit

    del ctx
    layer = Linear4bit(tiny.HIDDEN, tiny.HIDDEN, bias=False, quant_type="nf4", compute_dtype=torch.bfloat16)
    yield at_least("size of what comes out", float(layer(torch.ones(2, tiny.HIDDEN)).float().norm()), 1e-3)


@call(LOADING, phase=Phase.FORWARD, requires=("4bit",))
def four_bit_moved(ctx: Context) -> Iterator[Check]:
    """A 4-bit layer works after a move to its device."""
    import torch
    from bitsandbytes.nn import Linear4bit

    layer = Linear4bit(tiny.HIDDEN, tiny.HIDDEN, bias=False, quant_type="nf4", compute_dtype=torch.bfloat16)
    layer, inputs = layer.to(ctx.place.device), torch.ones(2, tiny.HIDDEN, device=ctx.place.device)
    yield at_least("size of what comes out", float(layer(inputs).float().norm()), 1e-3)


def experts(name: str) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(
        name,
        hidden_size=tiny.HIDDEN,
        intermediate_size=tiny.HIDDEN,
        moe_intermediate_size=tiny.HIDDEN,
        num_hidden_layers=tiny.LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_experts=4,
        num_local_experts=4,
        num_experts_per_tok=2,
        vocab_size=tiny.VOCABULARY,
        max_position_embeddings=2 * tiny.LENGTH,
        pad_token_id=0,
        use_cache=False,
    )


@call(LOADING, phase=Phase.LOAD, requires=FOUR)
def experts_quantised(ctx: Context) -> Iterator[Check]:
    """Loading quantises the experts of a mixture like the rest of the model."""
    model = models.loaded(ctx, "nf4", folder=models.published(ctx, experts("olmoe")))
    left = sum(
        parameter.nbytes
        for name, parameter in model.named_parameters()
        if ".experts." in name and type(parameter).__name__ != "Params4bit"
    )
    yield equal("bytes of experts that were not quantised", left, 0)


@call(LOADING, phase=Phase.FORWARD, requires=(*FOUR, "llama4"))
def quantised_router(ctx: Context) -> Iterator[Check]:
    """A 4-bit Llama 4 routes tokens to its experts."""
    from transformers import Llama4TextConfig

    settings = experts("llama").to_dict()
    kept = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "head_dim")
    config = Llama4TextConfig(
        **{name: settings[name] for name in (*kept, "num_key_value_heads", "max_position_embeddings")},
        intermediate_size_mlp=tiny.HIDDEN,
        num_local_experts=32,
        num_experts_per_tok=1,
        pad_token_id=0,
        attention_chunk_size=2 * tiny.LENGTH,
        attn_implementation="eager",
    )
    folder = models.published(ctx, config)
    expected = models.logits(models.loaded(ctx, folder=folder))
    yield at_most("logits", relative(models.logits(models.loaded(ctx, "nf4", folder=folder)), expected), 1.0)
