"""Recommended workarounds for well-known failures that no case of the grid can measure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, jobs
from cases.api.jobs import FSDP1, FSDP2, PACKED
from cases.apply import compat
from cases.checks import observers
from cases.model import architectures, tiny
from cases.reference import tolerance
from cases.space.options import Options
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.options import DType, Storage

ADVICE = "Advice from upstream threads"


@call(ADVICE, phase=Phase.ADAPT, requires=PACKED)
def cast_parameters_uint8_storage(ctx: Context) -> Iterator[Check]:
    """Casting the data of every parameter to bfloat16 leaves 4-bit weights stored in bytes as they were."""
    yield from cast_to_bfloat16(ctx, "uint8")


@call(ADVICE, phase=Phase.ADAPT, requires=PACKED)
def cast_parameters_fp32_storage(ctx: Context) -> Iterator[Check]:
    """Casting the data of every parameter to bfloat16 leaves 4-bit weights stored in float32 as they were."""
    yield from cast_to_bfloat16(ctx, "fp32")


@call(ADVICE, phase=Phase.ADAPT, requires=PACKED)
def cast_parameters_bf16_storage(ctx: Context) -> Iterator[Check]:
    """Casting the data of every parameter to bfloat16 casts only adapters if 4-bit weights are stored in bfloat16."""
    yield from cast_to_bfloat16(ctx, "bf16")


def cast_to_bfloat16(ctx: Context, storage: Storage) -> Iterator[Check]:
    import torch

    model = jobs.adapted(ctx, quant="nf4", torch_dtype="bf16", bnb_4bit_quant_storage=storage).train()
    ids = tiny.batch(0).to(ctx.place.device)
    expected = model(input_ids=ids).logits.float()  # with gradients: without, bitsandbytes repacks weights on the CPU
    for parameter in model.parameters():
        if parameter.dtype != torch.bfloat16:
            parameter.data = parameter.data.to(torch.bfloat16)
    found = model(input_ids=ids).logits.float()
    yield at_most("logits off", tolerance.relative(found.detach(), expected.detach()), jobs.HALF)


@call(ADVICE, phase=Phase.FORWARD, requires=PACKED)
def attention_dtype_storage_is_load_dtype(ctx: Context) -> Iterator[Check]:
    """Under bfloat16 autocast, attention gets bfloat16 if float32 is both the storage and the load dtype."""
    yield query_dtype(packed(ctx, load="fp32", storage="fp32"), ctx)


@call(ADVICE, phase=Phase.FORWARD, requires=PACKED)
def attention_dtype_bf16_storage_is_load_dtype(ctx: Context) -> Iterator[Check]:
    """Under bfloat16 autocast, attention gets bfloat16 if bfloat16 is both the storage and the load dtype."""
    yield query_dtype(packed(ctx, load="bf16", storage="bf16"), ctx)


@call(ADVICE, phase=Phase.FORWARD, requires=PACKED)
def attention_dtype_storage_set_apart(ctx: Context) -> Iterator[Check]:
    """Under bfloat16 autocast, attention gets bfloat16 with float32 storage and a bfloat16 load dtype."""
    yield query_dtype(packed(ctx, load="bf16", storage="fp32"), ctx)


def packed(ctx: Context, *, load: DType, storage: Storage) -> Any:
    """A 4-bit model that computes in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM

    asked = Options().but(quant="nf4", torch_dtype=load, bnb_4bit_quant_storage=storage)
    arguments = compat.load_arguments(asked, ctx.place.device)
    arguments["quantization_config"].bnb_4bit_compute_dtype = torch.bfloat16
    return AutoModelForCausalLM.from_pretrained(architectures.plain_checkpoint(ctx.cache), **arguments)


def query_dtype(model: Any, ctx: Context) -> Check:
    """FlashAttention takes float16 and bfloat16 only."""
    import torch

    seen = []
    query = next(module for name, module in model.named_modules() if name.endswith("q_proj"))
    query.register_forward_hook(lambda _module, _inputs, output: seen.append(compat.dtype_name(output.dtype)))
    with torch.no_grad(), torch.autocast(ctx.place.kind, dtype=torch.bfloat16):
        jobs.loss(model, ctx)
    return equal("dtype of the queries", "+".join(seen), "bf16")


@call(ADVICE, phase=Phase.LOAD, requires=PACKED)
def float32_storage_bytes(ctx: Context) -> Iterator[Check]:
    """A 4-bit model with float32 storage takes no more memory than with uint8 storage."""
    yield bytes_beside_default(packed(ctx, load="bf16", storage="fp32"), ctx)


@call(ADVICE, phase=Phase.LOAD, requires=PACKED)
def float32_storage_as_load_dtype_bytes(ctx: Context) -> Iterator[Check]:
    """A 4-bit model with float32 storage and load dtype takes no more memory than with uint8 storage."""
    yield bytes_beside_default(packed(ctx, load="fp32", storage="fp32"), ctx)


def bytes_beside_default(model: Any, ctx: Context) -> Check:
    usual = observers.local_bytes(packed(ctx, load="bf16", storage="uint8"))
    return at_most("bytes / of the default storage", observers.local_bytes(model) / usual, 1.01)


@call(ADVICE, phase=Phase.MERGE)
def merge_with_device_map_auto(ctx: Context) -> Iterator[Check]:
    """AutoPeftModelForCausalLM.from_pretrained(device_map='auto') and merge_and_unload give the adapter's logits."""
    import torch
    from peft import AutoPeftModelForCausalLM

    jobs.adapted(ctx).save_pretrained(ctx.kept)
    ids = tiny.batch(0).to(ctx.place.device)
    with torch.no_grad():
        expected = jobs.adapted(ctx)(input_ids=ids).logits
        model = AutoPeftModelForCausalLM.from_pretrained(ctx.kept, device_map="auto")
        found = model.merge_and_unload()(input_ids=ids).logits
    yield at_most("merged logits off", tolerance.relative(found.cpu(), expected.cpu()), jobs.SAME)


@call(ADVICE, phase=Phase.ADAPT, ranks=2, requires=FSDP1)
def fsdp1_dora_after_wrap(ctx: Context) -> Iterator[Check]:
    """DoRA that is added to a model under FSDP1 starts with the base's norms as magnitudes."""
    yield from magnitudes_after_wrap(ctx, "fsdp1")


@call(ADVICE, phase=Phase.ADAPT, ranks=2, requires=FSDP2)
def fsdp2_dora_after_wrap(ctx: Context) -> Iterator[Check]:
    """DoRA that is added to a model under FSDP2 starts with the base's norms as magnitudes."""
    yield from magnitudes_after_wrap(ctx, "fsdp2")


def magnitudes_after_wrap(ctx: Context, strategy: str) -> Iterator[Check]:
    from peft import get_peft_model

    base = jobs.base(ctx)
    jobs.wrapped(ctx, base, strategy=strategy, method="full")
    model = get_peft_model(base, jobs.lora_config(use_dora=True))
    name, found = next((n, p) for n, p in tiny.named(model) if "up_proj.lora_magnitude" in n)
    rows = tiny.values(name.rpartition(".lora_")[0] + ".weight", (2 * tiny.HIDDEN, tiny.HIDDEN))
    yield equal("magnitudes", found.numel(), len(rows))
    yield at_most("magnitudes off", tolerance.relative(observers.whole(found).reshape(-1), rows.norm(dim=1)), jobs.SAME)
    jobs.loss(model, ctx).backward()


@call(ADVICE, phase=Phase.FORWARD, ranks=2, requires=(*PACKED, *FSDP2))
def fsdp2_packed_bits(ctx: Context) -> Iterator[Check]:
    """FSDP2 shards and gathers 4-bit weights in bfloat16 storage without changing a bit."""
    from bitsandbytes.nn import Linear4bit

    layer = packed_layer(ctx)
    fully_shard = compat.fully_shard()
    before = observers.digest(observers.raw(layer[0].weight))
    yield at_least("weights that are NaN if read as numbers", int(layer[0].weight.isnan().sum()), 1)
    fully_shard(layer)
    yield equal("bits that FSDP2 holds", observers.digest(observers.raw(layer[0].weight)) == before, bound=True)
    layer.unshard()
    yield equal("layer", isinstance(layer[0], Linear4bit), bound=True)
    yield equal("bits as gathered", observers.digest(observers.raw(layer[0].weight)) == before, bound=True)


def packed_layer(ctx: Context) -> Any:
    """A layer so large that some pairs of its bytes are NaN when read as bfloat16."""
    import torch
    from bitsandbytes.nn import Linear4bit

    torch.manual_seed(0)
    layer = Linear4bit(512, 512, bias=False, quant_type="nf4", quant_storage=torch.bfloat16)
    return torch.nn.Sequential(layer.to(ctx.place.device))
