"""The GPU memory of a training step against what the strategy promises.

cuBLAS takes workspaces of up to 32 MiB, which hide the weights of the tiny model of all other cells. The decoder here
has 126 million weights in layers of equal size, so that its terms are far apart; its batch is small, so that they are
not hidden by activations. See ``cases.checks.memory_promises`` for the promises and their derivation.
"""

from __future__ import annotations

import functools
import gc
from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.api.jobs import FSDP1, FSDP2, PACKED
from cases.apply import compat
from cases.checks import memory_promises
from cases.checks.memory_promises import FLOAT, HALF, MeasuredMemory, Promise
from cases.model import tiny
from cases.space.verdict import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

MEMORY = "Peak GPU memory of a step"
GPU = ("gpu_memory",)
HIDDEN, INNER, LAYERS, VOCABULARY, TOKENS = 1024, 2048, 12, 128, 8
LAYER = 4 * HIDDEN**2 + 3 * HIDDEN * INNER  # weights of a layer's linear parts, which NF4 packs
KEPT_PER_LAYER = 40  # tensors that the passes through a layer keep; none is larger than TOKENS x INNER in float32
ACTIVATIONS = LAYERS * KEPT_PER_LAYER * TOKENS * INNER * FLOAT
WARM_UP = 2  # steps; DDP arranges its buckets anew in the second one


def decoder(ctx: Context) -> Any:
    """A float32 decoder on this rank's GPU, with random weights."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        vocab_size=VOCABULARY,
        max_position_embeddings=TOKENS,
        tie_word_embeddings=False,
        use_cache=False,
    )
    with torch.device(ctx.place.device):
        return AutoModelForCausalLM.from_config(config)


def weights(parts: Any) -> int:
    return sum(weight.numel() for weight in parts.parameters())


def adamw(model: Any) -> Any:
    import torch

    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)


def occupied_before(ctx: Context) -> int:
    """The bytes in use before there is a model: products in both dtypes and both passes create cuBLAS' workspaces."""
    import torch

    for dtype in (torch.float32, torch.bfloat16):
        layer = torch.nn.Linear(HIDDEN, INNER, bias=False, device=ctx.place.device, dtype=dtype)
        layer(torch.ones(TOKENS, HIDDEN, device=ctx.place.device, dtype=dtype)).float().sum().backward()
        del layer
    return occupied()


def occupied() -> int:
    import torch

    gc.collect()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated())


def measured(ctx: Context, model: Any, optimiser: Any, before: int) -> MeasuredMemory:
    """Train a few steps, and measure before and during the last one."""
    import torch

    ids = torch.arange(TOKENS, device=ctx.place.device)[None] + tiny.END + 1
    for _ in range(WARM_UP):
        step(model, optimiser, ids)
    resting = occupied()
    torch.cuda.reset_peak_memory_stats()
    step(model, optimiser, ids)
    torch.cuda.synchronize()
    return MeasuredMemory(resting - before, int(torch.cuda.max_memory_allocated()) - before)


def step(model: Any, optimiser: Any, ids: Any) -> None:
    model(input_ids=ids, labels=ids).loss.backward()
    optimiser.step()
    optimiser.zero_grad()


def judged(found: MeasuredMemory, promise: Promise) -> Iterator[Check]:
    yield from memory_promises.checks(found, promise, activations=ACTIVATIONS)


@call(MEMORY, phase=Phase.OPTIMIZER, requires=GPU)
def peak_memory_full(ctx: Context) -> Iterator[Check]:
    """Full fine-tuning with AdamW takes 12 bytes a weight between two steps, and 20 at the peak."""
    before, model = occupied_before(ctx), decoder(ctx).train()
    promise = memory_promises.whole(weights(model))
    yield from judged(measured(ctx, model, adamw(model), before), promise)


@call(MEMORY, phase=Phase.OPTIMIZER, ranks=2, requires=GPU)
def peak_memory_ddp(ctx: Context) -> Iterator[Check]:
    """DDP adds one copy of the gradients to what one process needs."""
    from torch.nn.parallel import DistributedDataParallel

    before, model = occupied_before(ctx), decoder(ctx).train()
    promise = memory_promises.replicated(weights(model))
    wrapped = DistributedDataParallel(model, device_ids=[ctx.place.device])
    yield from judged(measured(ctx, wrapped, adamw(wrapped), before), promise)


def under_fsdp(ctx: Context, shard: Callable[..., Any], *, offload: bool = False) -> Iterator[Check]:
    before, model = occupied_before(ctx), decoder(ctx).train()
    unit, ranks = weights(model.model.layers[0]), ctx.place.world_size
    promise = memory_promises.sharded(weights(model), unit=unit, ranks=ranks, keeps_gradients=shard is by_fsdp1)
    if offload:
        promise = memory_promises.offloaded(unit=unit, ranks=ranks)
    wrapped = shard(model, ctx, offload=offload)
    yield from judged(measured(ctx, wrapped, adamw(wrapped), before), promise)


def by_fsdp1(model: Any, ctx: Context, *, offload: bool) -> Any:
    import torch
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={type(model.model.layers[0])}
        ),
        cpu_offload=CPUOffload(offload_params=True) if offload else None,
        device_id=torch.device("cuda", ctx.place.device),
        use_orig_params=True,
    )


def by_fsdp2(model: Any, ctx: Context, *, offload: bool) -> Any:
    fully_shard, mesh = compat.fully_shard(), compat.mesh(ctx.place)
    policy = {"offload_policy": compat.fsdp2().CPUOffloadPolicy()} if offload else {}
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, **policy)
    fully_shard(model, mesh=mesh, **policy)
    return model


@call(MEMORY, phase=Phase.OPTIMIZER, ranks=2, requires=(*GPU, *FSDP1))
def peak_memory_fsdp1(ctx: Context) -> Iterator[Check]:
    """FSDP1 divides weights, gradients and moments by the number of ranks, and gathers few layers at a time."""
    yield from under_fsdp(ctx, by_fsdp1)


@call(MEMORY, phase=Phase.OPTIMIZER, ranks=2, requires=(*GPU, *FSDP2))
def peak_memory_fsdp2(ctx: Context) -> Iterator[Check]:
    """FSDP2 divides weights, gradients and moments by the number of ranks, and gathers few layers at a time."""
    yield from under_fsdp(ctx, by_fsdp2)


@call(MEMORY, phase=Phase.OPTIMIZER, ranks=2, requires=(*GPU, *FSDP1))
def peak_memory_fsdp1_offloaded(ctx: Context) -> Iterator[Check]:
    """FSDP1 with CPUOffload leaves no shard on the GPU between two steps."""
    yield from under_fsdp(ctx, by_fsdp1, offload=True)


@call(MEMORY, phase=Phase.OPTIMIZER, ranks=2, requires=(*GPU, *FSDP2))
def peak_memory_fsdp2_offloaded(ctx: Context) -> Iterator[Check]:
    """FSDP2 with CPUOffloadPolicy leaves no shard on the GPU between two steps."""
    yield from under_fsdp(ctx, by_fsdp2, offload=True)


@call(MEMORY, phase=Phase.OPTIMIZER, requires=(*GPU, *PACKED))
def peak_memory_qlora(ctx: Context) -> Iterator[Check]:
    """QLoRA keeps the base in half a byte a weight, and its scales; gradients and moments are the adapter's."""
    import torch
    from peft import get_peft_model

    before, folder = occupied_before(ctx), ctx.kept / "decoder"
    decoder(ctx).to(torch.bfloat16).save_pretrained(folder)
    model = get_peft_model(models.loaded(ctx, "nf4", folder=folder), models.config()).train()
    frozen = (2 * VOCABULARY + 2 * LAYERS + 1) * HIDDEN  # embeddings, head and norms
    promise = memory_promises.quantised(
        LAYERS * LAYER,
        others=frozen * HALF,
        largest=HIDDEN * INNER,
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
    )
    yield from judged(measured(ctx, model, adamw(model), before), promise)


@call(MEMORY, phase=Phase.OPTIMIZER, requires=(*GPU, "adamw_8bit_step"))
def peak_memory_adamw_8bit(ctx: Context) -> Iterator[Check]:
    """AdamW8bit keeps its moments in two bytes a weight, and their scales."""
    import bitsandbytes

    before, model = occupied_before(ctx), decoder(ctx).train()
    optimiser = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-4)
    yield from judged(measured(ctx, model, optimiser, before), memory_promises.eight_bit(weights(model)))


@call(MEMORY, phase=Phase.OPTIMIZER, requires=(*GPU, "paged_state"))
def peak_memory_paged_adamw_8bit(ctx: Context) -> Iterator[Check]:
    """PagedAdamW8bit keeps its moments outside the memory that torch allocates."""
    import bitsandbytes

    before, model = occupied_before(ctx), decoder(ctx).train()
    optimiser = bitsandbytes.optim.PagedAdamW8bit(model.parameters(), lr=1e-4)
    promise = memory_promises.eight_bit(weights(model), paged=True)
    yield from judged(measured(ctx, model, optimiser, before), promise)
