"""Several devices in one process: ``device_map``, layers on the CPU, adapters on another device than their base.

Each call compares with the same model on one GPU. None of them applies to a machine without GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call, models
from cases.api.merging import FP32, merged_and_saved, offloaded
from cases.apply import compat
from cases.model import architectures, tiny
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cases.apply.context import Context
    from cases.space.verdict import Check

DEVICES = "One model on several devices"
PAGED = "Optimisers with 8-bit state"
GPU = ("another_device",)
TWO_GPUS = (*GPU, "gpu_of_each_rank")
SECOND = 1  # of two GPUs, as a process that sees both counts them
STEPS, WIDE = 3, 512
MOMENTS = ("state1", "state2")


def devices(model: Any) -> str:
    """The devices of the weights; ``meta`` for weights that accelerate loads on demand."""
    return "+".join(sorted({str(weight.device) for weight in model.parameters()}))


def mapped(ctx: Context, device_map: Any, **other: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        architectures.plain_checkpoint(ctx.cache), device_map=device_map, **other
    )


def gradients(model: Any) -> dict[str, Any]:
    """The gradients of an adapter after one batch, on the CPU."""
    ids = models.ids(model)
    model.train()(input_ids=ids, labels=ids).loss.backward()
    trained = ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
    return {name: weight.grad.float().cpu() for name, weight in trained}


def furthest(found: dict[str, Any], expected: dict[str, Any]) -> float:
    """The largest relative error of a gradient; none may be missing."""
    return max(relative(found[name], each) for name, each in expected.items())


def alone(ctx: Context) -> Any:
    """The adapted model on one device."""
    return models.adapted(models.loaded(ctx, dtype="fp32"))


@call(DEVICES, phase=Phase.LOAD, requires=GPU)
def device_map_auto(ctx: Context) -> Iterator[Check]:
    """device_map="auto" puts a model that fits on the GPU without changing its logits."""
    model = mapped(ctx, "auto")
    yield equal("devices of the weights", devices(model), "cuda:0")
    expected = models.logits(models.loaded(ctx, dtype="fp32"))
    yield at_most("logits off", relative(models.logits(model), expected), FP32)


@call(DEVICES, phase=Phase.LOAD, requires=(*GPU, "4bit", "4bit_loading"))
def device_map_auto_four_bit(ctx: Context) -> Iterator[Check]:
    """device_map="auto" puts a 4-bit model on the GPU without changing its logits."""
    asked = compat.quantisation(models.chosen("nf4"))
    model, named = (mapped(ctx, each, quantization_config=asked) for each in ("auto", {"": ctx.place.device}))
    yield equal("devices of the weights", devices(model), "cuda:0")
    yield at_most("logits off", relative(models.logits(model), models.logits(named)), FP32)


@call(DEVICES, phase=Phase.LOAD, ranks=2, requires=TWO_GPUS)
def device_map_per_rank(ctx: Context) -> Iterator[Check]:
    """device_map={"": rank} puts each rank's model on its own GPU without changing its logits."""
    model = mapped(ctx, {"": ctx.place.device})
    yield equal("weights on the rank's own GPU", devices(model) == f"cuda:{ctx.place.rank}", bound=True)
    expected = models.logits(models.loaded(ctx, dtype="fp32"))
    yield at_most("logits off", relative(models.logits(model), expected), FP32)


@call(DEVICES, phase=Phase.BACKWARD, ranks=2, requires=TWO_GPUS)
def device_map_over_two_gpus(ctx: Context) -> Iterator[Check]:
    """A model with layers on two GPUs gives its adapter the same gradients."""
    if ctx.place.rank > 0:
        return  # one process has both GPUs
    base = offloaded(ctx, architectures.plain_checkpoint(ctx.cache), SECOND)
    yield equal("devices of the weights", devices(base), "cuda:0+cuda:1")
    found = gradients(models.adapted(base))
    yield at_most("gradients off", furthest(found, gradients(alone(ctx))), FP32)


@call(DEVICES, phase=Phase.MERGE, ranks=2, requires=TWO_GPUS)
def merge_over_two_gpus(ctx: Context) -> Iterator[Check]:
    """An adapter of a model with layers on two GPUs can be merged, saved and reloaded."""
    if ctx.place.rank > 0:
        return  # as above
    yield from merged_and_saved(ctx, architectures.plain_checkpoint(ctx.cache), SECOND)


@call(DEVICES, phase=Phase.BACKWARD, requires=GPU)
def device_map_layer_on_cpu(ctx: Context) -> Iterator[Check]:
    """A model with a layer on the CPU gives its adapter the same gradients."""
    base = offloaded(ctx, architectures.plain_checkpoint(ctx.cache), "cpu")
    yield equal("devices of the weights", devices(base), "cuda:0+meta")
    found = gradients(models.adapted(base))
    yield at_most("gradients off", furthest(found, gradients(alone(ctx))), FP32)


@call(DEVICES, phase=Phase.MERGE, requires=GPU)
def merge_layer_on_cpu(ctx: Context) -> Iterator[Check]:
    """An adapter of a model with a layer on the CPU can be merged, saved and reloaded."""
    yield from merged_and_saved(ctx, architectures.plain_checkpoint(ctx.cache), "cpu")


def merged_apart(ctx: Context, base: Any, adapter: Any) -> Iterator[Check]:
    """Merge an adapter whose weights were moved to another device than the base."""
    model = models.adapted(models.loaded(ctx, dtype="fp32").to(base))
    on_top = models.logits(model)
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            weight.data = weight.data.to(adapter)
    yield equal("devices of the weights", devices(model), "cpu+cuda:0")
    yield at_most("merged logits off", relative(models.logits(model.merge_and_unload()), on_top), FP32)


@call(DEVICES, phase=Phase.MERGE, requires=GPU)
def merge_adapter_on_cpu(ctx: Context) -> Iterator[Check]:
    """An adapter on the CPU is merged into a base on the GPU."""
    yield from merged_apart(ctx, ctx.place.device, "cpu")


@call(DEVICES, phase=Phase.MERGE, requires=GPU)
def merge_base_on_cpu(ctx: Context) -> Iterator[Check]:
    """An adapter on the GPU is merged into a base on the CPU."""
    yield from merged_apart(ctx, "cpu", ctx.place.device)


def merged_as_loaded(ctx: Context, folder: Path, **other: Any) -> Iterator[Check]:
    """A base that ``from_pretrained`` puts on the CPU, and an adapter that PEFT loads."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    on_top = models.logits(alone(ctx))
    base = AutoModelForCausalLM.from_pretrained(architectures.plain_checkpoint(ctx.cache))
    yield equal("devices of the base", devices(base), "cpu")
    model = PeftModel.from_pretrained(base, folder, **other)
    yield at_most("merged logits off", relative(models.logits(model.merge_and_unload()), on_top), FP32)


@call(DEVICES, phase=Phase.MERGE, requires=GPU)
def merge_loaded_on_cpu(ctx: Context) -> Iterator[Check]:
    """An adapter for a base on the CPU of a GPU machine merges on the CPU."""
    yield from merged_as_loaded(ctx, models.saved_adapter(ctx))


@call(DEVICES, phase=Phase.MERGE, requires=GPU)
def merge_loaded_on_gpu(ctx: Context) -> Iterator[Check]:
    """An adapter that is loaded with torch_device="cuda" merges into a base on the CPU."""
    yield from merged_as_loaded(ctx, models.saved_adapter(ctx), torch_device="cuda")


@call(PAGED, phase=Phase.OPTIMIZER, requires=("paged_state",))
def paged_moments(ctx: Context) -> Iterator[Check]:
    """PagedAdamW8bit keeps the moments of a large weight in paged memory, and its steps equal AdamW8bit's."""
    import bitsandbytes

    usual, state = stepped(ctx, bitsandbytes.optim.AdamW8bit)
    yield equal("moments in pages", in_pages(state), 0)
    paged, state = stepped(ctx, bitsandbytes.optim.PagedAdamW8bit)
    yield equal("moments in pages, paged", in_pages(state), len(MOMENTS))
    yield at_least("what the steps changed", relative(usual, tiny.values("paged", (WIDE, WIDE))), 1e-2)
    yield at_most("weights off", relative(paged, usual), FP32)


def in_pages(state: dict[str, Any]) -> int:
    return sum(bool(getattr(state[name], "is_paged", False)) for name in MOMENTS)


def stepped(ctx: Context, optimiser: Any) -> tuple[Any, dict[str, Any]]:
    """A weight large enough for paging (more than 100,000 numbers) after some steps, and its optimiser state."""
    import torch

    weight = torch.nn.Parameter(tiny.values("paged", (WIDE, WIDE)).to(ctx.place.device))
    goal = tiny.values("goal", (WIDE, WIDE)).to(ctx.place.device)
    steps = optimiser([weight], lr=0.01, min_8bit_size=1)
    for _ in range(STEPS):
        steps.zero_grad()
        (weight - goal).square().sum().backward()
        steps.step()
    return weight.detach().cpu(), steps.state[weight]
