"""Quantised models and adapters under FSDP: the order of a script's steps and its settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.apply import build, compat
from cases.model import architectures, tiny
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

SHARDING = "Sharding quantised models"
FOUR, EIGHT = ("4bit", "4bit_loading"), ("8bit", "8bit_loading")
WIDE = 256  # of a layer, so that some pairs of bytes look like NaN in bfloat16


def shard(ctx: Context, model: Any, **arguments: Any) -> Any:
    return compat.fully_shard()(model, mesh=compat.mesh(ctx.place), **arguments)


def quantised(ctx: Context, quant: str, storage: str = "uint8") -> Any:
    return build.load(models.chosen(quant, storage=storage), ctx.place, ctx.cache)


@call(SHARDING, phase=Phase.ADAPT, ranks=2, requires=("fsdp2_exists", "fsdp2", *FOUR))
def adapt_after_sharding(ctx: Context) -> Iterator[Check]:
    """get_peft_model works on a 4-bit model that is already sharded."""
    model = shard(ctx, quantised(ctx, "nf4", "bf16"))
    adapted = models.adapted(model)
    yield equal("type of an adapted layer", type(models.projection(adapted)).__name__, "Linear4bit")


@call(SHARDING, phase=Phase.ADAPT, ranks=2, requires=("fsdp2_exists", "fsdp2", *FOUR))
def adapt_before_sharding(ctx: Context) -> Iterator[Check]:
    """A 4-bit model with its adapter can be sharded."""
    adapted = shard(ctx, models.adapted(quantised(ctx, "nf4", "bf16")))
    yield equal("type of an adapted layer", type(models.projection(adapted)).__name__, "Linear4bit")


def packed(ctx: Context, storage: str, how: str) -> Iterator[Check]:
    """A 4-bit layer, sharded, against itself before."""
    import torch
    from bitsandbytes.nn import Linear4bit

    dtype = compat.dtype(storage)  # type: ignore[arg-type]
    layer = Linear4bit(WIDE, WIDE, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4", quant_storage=dtype)
    layer.load_state_dict({"weight": tiny.values("wide", (WIDE, WIDE))})
    layer = layer.to(ctx.place.device).train()
    bits = layer.weight.data.view(torch.int16)
    inputs = tiny.values("inputs", (4, WIDE)).to(ctx.place.device, torch.bfloat16)
    expected = layer(inputs).detach().float()
    yield at_least("pairs of bytes that are NaN as bfloat16", int(bits.view(torch.bfloat16).isnan().sum()), 1)
    found = (shard(ctx, layer) if how == "fsdp2" else flat(ctx, layer))(inputs).detach().float()
    yield at_most("output of the sharded layer", relative(found, expected), UNIT_ROUNDOFF["bf16"])


def flat(ctx: Context, layer: Any) -> Any:
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if ctx.place.kind == "cpu" else ctx.place.device
    return FullyShardedDataParallel(layer, device_id=device)


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=("fsdp2_exists", "fsdp2", "4bit"))
def packed_bf16_fsdp2(ctx: Context) -> Iterator[Check]:
    """FSDP2 keeps every bit of 4-bit weights in bfloat16 storage, including bytes that read as NaN."""
    yield from packed(ctx, "bf16", "fsdp2")


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=("fsdp1", "4bit"))
def packed_bf16_fsdp1(ctx: Context) -> Iterator[Check]:
    """FSDP1 keeps every bit of 4-bit weights in bfloat16 storage, including bytes that read as NaN."""
    yield from packed(ctx, "bf16", "fsdp1")


def mixed(ctx: Context, *, norms: bool) -> Iterator[Check]:
    """Run FSDP2's mixed precision on a bfloat16 base with float32 adapters, with trained or frozen norms."""
    import torch

    policies = __import__(compat.fully_shard().__module__, fromlist=["MixedPrecisionPolicy"])
    policy = policies.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    model = models.adapted(models.loaded(ctx))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(tiny.is_adapter(name) or (norms and "norm" in name))
    model = shard(ctx, model, mp_policy=policy)
    loss = model(input_ids=models.ids(model), labels=models.ids(model)).loss
    loss.backward()
    yield at_most("loss", float(loss), 100.0)


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=("fsdp2_exists", "fsdp2", "adapter_dtype"))
def mixed_dtypes_fsdp2(ctx: Context) -> Iterator[Check]:
    """Float32 adapters on a frozen bfloat16 base run under FSDP2's mixed precision."""
    yield from mixed(ctx, norms=False)


@call(SHARDING, phase=Phase.FORWARD, ranks=2, requires=("fsdp2_exists", "fsdp2", "adapter_dtype"))
def mixed_trained_dtypes_fsdp2(ctx: Context) -> Iterator[Check]:
    """Float32 adapters and trained bfloat16 norms run under FSDP2's mixed precision."""
    yield from mixed(ctx, norms=True)


def efficient(ctx: Context, quant: str, storage: str = "uint8", *, saved: bool = False) -> Iterator[Check]:
    """Load as under ``accelerate launch`` with FSDP's RAM-efficient loading: the weights on the first rank alone."""
    import torch.distributed as dist

    folder = architectures.plain_checkpoint(ctx.cache)
    if saved:
        folder = ctx.kept / "saved"
        if ctx.place.rank == 0:
            quantised(ctx, quant, storage).save_pretrained(folder)
        dist.barrier()
    os.environ.update(ACCELERATE_USE_FSDP="true", FSDP_CPU_RAM_EFFICIENT_LOADING="true", LOCAL_RANK=str(ctx.place.rank))
    arguments = compat.load_arguments(models.chosen(quant, storage=storage), ctx.place.device)
    del arguments["device_map"]
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, **arguments)
    if ctx.place.rank == 0:
        expected = models.logits(quantised(ctx, quant, storage), training=True)
        yield at_most("logits", relative(models.logits(model, training=True), expected), UNIT_ROUNDOFF["bf16"])
    layers = sum(type(module).__name__ in ("Linear4bit", "Linear8bitLt") for module in model.modules())
    yield equal("quantised layers", layers, tiny.LAYERS * len(tiny.LINEARS))


@call(SHARDING, phase=Phase.LOAD, ranks=2, requires=FOUR)
def ram_efficient_nf4(ctx: Context) -> Iterator[Check]:
    """A 4-bit model with uint8 storage loads with cpu_ram_efficient_loading."""
    yield from efficient(ctx, "nf4")


@call(SHARDING, phase=Phase.LOAD, ranks=2, requires=FOUR)
def ram_efficient_nf4_bf16_storage(ctx: Context) -> Iterator[Check]:
    """A 4-bit model with bfloat16 storage loads with cpu_ram_efficient_loading."""
    yield from efficient(ctx, "nf4", "bf16")


@call(SHARDING, phase=Phase.LOAD, ranks=2, requires=FOUR)
def ram_efficient_prequantised(ctx: Context) -> Iterator[Check]:
    """A 4-bit checkpoint with bfloat16 storage loads with cpu_ram_efficient_loading."""
    yield from efficient(ctx, "nf4", "bf16", saved=True)


@call(SHARDING, phase=Phase.LOAD, ranks=2, requires=EIGHT)
def ram_efficient_int8(ctx: Context) -> Iterator[Check]:
    """An 8-bit model loads with cpu_ram_efficient_loading."""
    yield from efficient(ctx, "int8")


@call(SHARDING, phase=Phase.WRAP, ranks=2, requires=("fsdp1", *EIGHT))
def int8_in_one_unit(ctx: Context) -> Iterator[Check]:
    """FSDP1 shards an 8-bit model as one unit."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = torch.device("cpu") if ctx.place.kind == "cpu" else ctx.place.device
    model = FullyShardedDataParallel(quantised(ctx, "int8"), device_id=device)
    yield at_most("loss", float(model(input_ids=models.ids(model), labels=models.ids(model)).loss), 100.0)
