"""Adapters on quantised and unquantised models, without a trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.apply import compat
from cases.model import architectures, tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

ADAPTING = "Adapting a model"
PREPARING = "Preparing a quantised model"
FOUR, EIGHT = ("4bit", "4bit_loading"), ("8bit", "8bit_loading")
MANY_WORDS = 4096


def narrow(ctx: Context, quant: str) -> Iterator[Check]:
    model = compat.adapted(models.loaded(ctx, quant), models.config(), autocast_adapter_dtype=False)
    found = {compat.dtype_name(p.dtype) for name, p in model.named_parameters() if tiny.is_adapter(name)}
    yield equal("dtype of the adapter", "+".join(sorted(found)), "bf16")


@call(ADAPTING, phase=Phase.ADAPT, requires=("adapter_dtype",))
def narrow_adapter(ctx: Context) -> Iterator[Check]:
    """autocast_adapter_dtype=False keeps the adapter of a bfloat16 model in bfloat16."""
    yield from narrow(ctx, "none")


@call(ADAPTING, phase=Phase.ADAPT, requires=("adapter_dtype", *FOUR))
def narrow_adapter_nf4(ctx: Context) -> Iterator[Check]:
    """autocast_adapter_dtype=False keeps the adapter of a 4-bit model in the compute dtype."""
    yield from narrow(ctx, "nf4")


@call(ADAPTING, phase=Phase.ADAPT, requires=("adapter_dtype", *EIGHT))
def narrow_adapter_int8(ctx: Context) -> Iterator[Check]:
    """autocast_adapter_dtype=False keeps the adapter of an 8-bit bfloat16 model in bfloat16."""
    yield from narrow(ctx, "int8")


def step(model: Any) -> Iterator[Check]:
    """Run one backward pass, and check that the loss is finite and the adapters receive gradients."""
    loss = model.train()(input_ids=models.ids(model), labels=models.ids(model)).loss
    loss.backward()
    gradients = [float(p.grad.float().norm()) for p in model.parameters() if p.requires_grad and p.grad is not None]
    yield at_most("loss", float(loss), 100.0)
    yield at_least("largest gradient of an adapter", max(gradients, default=0.0), 1e-6)


def adalora(ctx: Context, quant: str) -> Iterator[Check]:
    from peft import AdaLoraConfig, get_peft_model

    config = AdaLoraConfig(
        task_type="CAUSAL_LM", target_modules=list(tiny.TARGETS), init_r=tiny.RANK, total_step=10, tinit=1, tfinal=1
    )
    yield from step(get_peft_model(models.loaded(ctx, quant), config))


@call(ADAPTING, phase=Phase.FORWARD, requires=EIGHT)
def adalora_int8(ctx: Context) -> Iterator[Check]:
    """AdaLoRA trains on an 8-bit base."""
    yield from adalora(ctx, "int8")


@call(ADAPTING, phase=Phase.FORWARD, requires=FOUR)
def adalora_nf4(ctx: Context) -> Iterator[Check]:
    """AdaLoRA trains on a 4-bit base."""
    yield from adalora(ctx, "nf4")


@call(ADAPTING, phase=Phase.FORWARD)
def adalora_plain(ctx: Context) -> Iterator[Check]:
    """AdaLoRA trains."""
    yield from adalora(ctx, "none")


@call(ADAPTING, phase=Phase.FORWARD, requires=("dora", *EIGHT))
def dora_int8(ctx: Context) -> Iterator[Check]:
    """DoRA trains on an 8-bit base."""
    yield from step(models.adapted(models.loaded(ctx, "int8"), use_dora=True))


@call(ADAPTING, phase=Phase.FORWARD, requires=("dora", *FOUR))
def dora_nf4(ctx: Context) -> Iterator[Check]:
    """DoRA trains on a 4-bit base."""
    yield from step(models.adapted(models.loaded(ctx, "nf4"), use_dora=True))


def ephemeral(ctx: Context, *, offload: bool) -> Iterator[Check]:
    from peft import LoraRuntimeConfig

    runtime = LoraRuntimeConfig(ephemeral_gpu_offload=offload)
    yield from step(models.adapted(models.loaded(ctx, dtype="fp32"), use_dora=True, runtime_config=runtime))


@call(ADAPTING, phase=Phase.ADAPT, requires=("dora", "runtime_config"))
def dora_ephemeral_offload(ctx: Context) -> Iterator[Check]:
    """DoRA with ephemeral_gpu_offload works on a machine without CUDA."""
    yield from ephemeral(ctx, offload=True)


@call(ADAPTING, phase=Phase.ADAPT, requires=("dora", "runtime_config"))
def dora_without_offload(ctx: Context) -> Iterator[Check]:
    """DoRA without ephemeral_gpu_offload works on a machine without CUDA."""
    yield from ephemeral(ctx, offload=False)


def ia3(ctx: Context, quant: str) -> Iterator[Check]:
    from peft import IA3Config, get_peft_model

    config = IA3Config(task_type="CAUSAL_LM", target_modules=["k_proj", "v_proj"], feedforward_modules=[])
    merged = get_peft_model(models.loaded(ctx, quant), config).merge_and_unload()
    yield equal("layers that still have an adapter", sum("ia3" in name for name, _ in merged.named_modules()), 0)


@call("Merging", phase=Phase.MERGE, requires=EIGHT)
def merge_ia3_int8(ctx: Context) -> Iterator[Check]:
    """IA3 is merged into an 8-bit base."""
    yield from ia3(ctx, "int8")


@call("Merging", phase=Phase.MERGE)
def merge_ia3(ctx: Context) -> Iterator[Check]:
    """IA3 is merged."""
    yield from ia3(ctx, "none")


def size(model: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


@call(PREPARING, phase=Phase.ADAPT, requires=FOUR)
def prepared_size(ctx: Context) -> Iterator[Check]:
    """After prepare_model_for_kbit_training, a 4-bit model is smaller than in bfloat16."""
    from peft import prepare_model_for_kbit_training

    folder = models.published(ctx, models.variant(vocab_size=MANY_WORDS))
    whole = size(models.loaded(ctx, folder=folder))
    prepared = prepare_model_for_kbit_training(models.loaded(ctx, "nf4", folder=folder))
    yield at_most("bytes, in units of the bfloat16 model's", size(prepared) / whole, 1.0)


@call(PREPARING, phase=Phase.ADAPT, requires=FOUR)
def unprepared_size(ctx: Context) -> Iterator[Check]:
    """A loaded 4-bit model is smaller than in bfloat16."""
    folder = models.published(ctx, models.variant(vocab_size=MANY_WORDS))
    whole = size(models.loaded(ctx, folder=folder))
    yield at_most(
        "bytes, in units of the bfloat16 model's", size(models.loaded(ctx, "nf4", folder=folder)) / whole, 1.0
    )


def widened(ctx: Context) -> Any:
    """A QLoRA model with float32 norms and a bfloat16 head, as trl's trainers create it."""
    import torch

    model = models.adapted(models.loaded(ctx, "nf4"))
    for name, module in model.named_modules():
        if "norm" in name:
            module.to(torch.float32)
    return model


@call(PREPARING, phase=Phase.INFER, requires=FOUR)
def infer_with_wide_norms(ctx: Context) -> Iterator[Check]:
    """A QLoRA model with float32 norms runs inference without autocast."""
    yield at_most("loss", float(infer(widened(ctx))), 100.0)


@call(PREPARING, phase=Phase.INFER, requires=FOUR)
def infer_with_wide_norms_in_autocast(ctx: Context) -> Iterator[Check]:
    """A QLoRA model with float32 norms runs inference under autocast."""
    import torch

    with torch.autocast(ctx.place.kind, dtype=torch.bfloat16):
        yield at_most("loss", float(infer(widened(ctx))), 100.0)


def infer(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model.eval()(input_ids=models.ids(model), labels=models.ids(model)).loss


def without_dtype(ctx: Context, **arguments: Any) -> Iterator[Check]:
    """The QLoRA model of a script that sets a compute dtype and, by default, no load dtype."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    asked = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    folder = models.published(ctx, architectures.plain_config())
    model = AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=asked, device_map={"": ctx.place.device}, **arguments
    )
    rest = {compat.dtype_name(p.dtype) for p in model.parameters() if p.is_floating_point()}
    yield equal("dtype of what is not quantised", "+".join(sorted(rest)), "bf16")
    yield at_most("loss", float(infer(models.adapted(model))), 100.0)


@call(PREPARING, phase=Phase.FORWARD, requires=FOUR)
def compute_dtype_alone(ctx: Context) -> Iterator[Check]:
    """A bfloat16 model loaded in 4 bits with a bfloat16 compute dtype keeps its other weights in bfloat16."""
    yield from without_dtype(ctx)


@call(PREPARING, phase=Phase.FORWARD, requires=FOUR)
def compute_dtype_and_dtype(ctx: Context) -> Iterator[Check]:
    """A model loaded in 4 bits keeps its other weights in the requested dtype."""
    yield from without_dtype(ctx, **compat.load_arguments(models.chosen(), ctx.place.device))


def initialised(ctx: Context, how: str) -> Any:
    """A 4-bit model with adapters that should reduce the quantisation error."""
    import torch
    from peft import LoftQConfig, PeftModel, get_peft_model

    whole = models.loaded(ctx, dtype="fp32")
    torch.manual_seed(0)
    config = models.config(init_lora_weights="loftq", loftq_config=LoftQConfig(loftq_bits=4))
    model = get_peft_model(whole, config)
    model.peft_config["default"].init_lora_weights = True  # or it would be done again on loading
    model.save_pretrained(ctx.kept / "adapter")
    folder = architectures.plain_checkpoint(ctx.cache)
    if how == "rebuilt":
        folder = ctx.kept / "base"
        model.unload().save_pretrained(folder)
    return PeftModel.from_pretrained(models.loaded(ctx, "nf4", folder=folder), ctx.kept / "adapter")


def lost(ctx: Context, model: Any) -> float:
    return relative(models.logits(model, training=True), models.logits(models.loaded(ctx, dtype="fp32")))


def loftq(ctx: Context, how: str) -> Iterator[Check]:
    plain = lost(ctx, models.loaded(ctx, "nf4"))
    found = lost(ctx, initialised(ctx, how))
    yield at_most("error of the quantised model, in units of the one without LoftQ", found / plain, 1.0)


@call(PREPARING, phase=Phase.ADAPT, requires=FOUR)
def loftq_on_the_original(ctx: Context) -> Iterator[Check]:
    """LoftQ's adapter makes the quantised original more accurate."""
    yield from loftq(ctx, "original")


@call(PREPARING, phase=Phase.ADAPT, requires=FOUR)
def loftq_on_its_base(ctx: Context) -> Iterator[Check]:
    """LoftQ's adapter makes its saved base more accurate after quantisation."""
    yield from loftq(ctx, "rebuilt")


@call(PREPARING, phase=Phase.ADAPT, requires=FOUR)
def loftq_replaced(ctx: Context) -> Iterator[Check]:
    """replace_lora_weights_loftq makes a 4-bit model more accurate."""
    from peft import get_peft_model, replace_lora_weights_loftq

    plain = lost(ctx, models.loaded(ctx, "nf4"))
    model = get_peft_model(models.loaded(ctx, "nf4"), models.config())
    replace_lora_weights_loftq(model, model_path=str(architectures.plain_checkpoint(ctx.cache) / "model.safetensors"))
    found = lost(ctx, model)
    yield at_most("error of the quantised model, in units of the one without LoftQ", found / plain, 1.0)
