"""The evidence of the options of FSDP1 and FSDP2: units, shards, dtypes of the reduction, and saved states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.apply.wrapping import MIN_NUM_PARAMS
from cases.checks import shards
from cases.checks.engagement.recorder import class_names, wrapper_class
from cases.checks.engagement.wrapper import held_bytes
from cases.model import adapters, architectures
from cases.space.options import PROMPTS
from cases.space.verdict import at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.checks.engagement.recorder import EngagementRecorder
    from cases.space.options import Options
    from cases.space.verdict import Check

MOST_COARSE = 0.9  # of float32 gradients that are means of bfloat16 ones; measured: 0.45 on 2 ranks


def use_orig_params(recorder: EngagementRecorder) -> Iterator[Check]:
    flat = any("_flat_param" in name for name, _ in recorder.wrapped.named_parameters())
    yield equal("parameters keep their names", not flat, recorder.options.use_orig_params)


def auto_wrap_policy(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.options.auto_wrap_policy == "size":
        sizes, whole_layers = shards.inner_units(recorder.wrapped)
        yield at_least("parameters of the smallest inner unit", min(sizes, default=0), MIN_NUM_PARAMS)
        yield equal("units that are a decoder layer", whole_layers, 0)
        return
    units = list(sharded_units(recorder))
    layers = 0 if recorder.options.auto_wrap_policy == "none" else architectures.spec(recorder.options).blocks
    if recorder.options.auto_wrap_policy == "peft":
        yield at_least("sharded units", len(units), 1 + layers + units_of_adapter(recorder.options))
    elif recorder.options.front_end == "loop":
        yield equal("sharded units", len(units), 1 + layers)
    else:  # accelerate makes units of embeddings and heads as well, the Trainer of each part of an adapter
        yield at_least("sharded units", len(units), 1 + layers)
        found = sum(name.endswith(architectures.spec(recorder.options).block) for name in units)
        yield equal("units that are a decoder layer", found, layers)


def sharded_units(recorder: EngagementRecorder) -> Iterator[str]:
    """The class name of each FSDP unit's module; FSDP2 adds a prefix to it."""
    name = wrapper_class(recorder.options)
    for module in recorder.wrapped.modules():
        if recorder.options.strategy == "fsdp2" and name in class_names(module):
            yield type(module).__name__
        elif recorder.options.strategy == "fsdp1" and type(module).__name__ == "FullyShardedDataParallel":
            yield type(module.module).__name__


def units_of_adapter(options: Options) -> int:
    """PEFT's wrap policy puts each trained module into a unit; parts that are bare parameters stay with their layer."""
    if options.method in ("full", "adalora"):
        return 0
    parts = [part for part in adapters.PARTS[options.method] if part in ("lora_A", "lora_B")]
    return 1 if options.method in PROMPTS else len(parts) * architectures.spec(options).adapted


def reshard_after_forward(recorder: EngagementRecorder) -> Iterator[Check]:
    found = "+".join(sorted(map(str, recorder.sharded_after_forward)))
    yield equal("layer sharded after forward", found, str(recorder.options.reshard_after_forward))


def sharding_strategy(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.options.auto_wrap_policy != "none":  # the root's weights are always kept for its backward pass
        found = "+".join(sorted(map(str, recorder.sharded_after_forward)))
        yield equal("inner units sharded after forward", found, str(recorder.options.sharding_strategy == "full_shard"))
    if recorder.options.sharding_strategy == "no_shard":
        share = held_bytes(recorder.wrapped, recorder.options) / recorder.total_bytes
        yield at_least("parameter bytes / total", share, 1.0)


def device_mesh(recorder: EngagementRecorder) -> Iterator[Check]:
    """Check the mesh shape, and that gradients and optimiser state are sharded like the parameters."""
    ranks, copies = recorder.place.world_size, shards.copies(recorder.options)
    yield equal("copies x shards", shards.mesh_shape(recorder.wrapped), f"{copies} x {ranks // copies}")
    total = shards.trained_entries(recorder.wrapped)
    held = {"gradients": recorder.held_gradients, **shards.held_state(recorder.optimiser)}
    for name, entries in shards.over_all_ranks(held, recorder.place).items():
        share = entries / total
        yield at_least(f"{name} on all ranks / trained parameters", share, float(copies))
        yield at_most(f"{name} on all ranks / trained parameters", share, copies * shards.SLACK)


def mixed_precision(recorder: EngagementRecorder) -> Iterator[Check]:
    """Check the dtype of the reduction by the gradients: sums in bfloat16 are bfloat16 numbers.

    About half or more of the entries of a float32 mean of bfloat16 numbers need more bits.
    """
    asked = recorder.options.mixed_precision
    full = all(
        recorder.dtypes[name] == "fp32" for name in recorder.trainable
    )  # otherwise the gradient is rounded again
    if (
        asked == "off"
        or not full
        or recorder.options.gradient_accumulation_steps > 1
        or recorder.options.clip_grad_norm
    ):
        return
    if asked == "bf16":
        yield at_least("gradient entries that bfloat16 holds", recorder.coarse_share, 1.0)
    else:
        yield at_most("gradient entries that bfloat16 holds", recorder.coarse_share, MOST_COARSE)


def cpu_offload(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.place.kind == "cpu":
        return  # a requirement skips these cases on a CPU
    devices = {tensor.device.type for tensor in shards.resting(recorder.wrapped, recorder.optimiser)}
    yield equal("devices of parameters and optimiser state", "+".join(sorted(devices)), where(recorder))


def where(recorder: EngagementRecorder) -> str:
    return "cpu" if recorder.options.cpu_offload else "cuda"


def cpu_ram_efficient_loading(recorder: EngagementRecorder) -> Iterator[Check]:
    expected = len(recorder.dtypes) if recorder.options.cpu_ram_efficient_loading and recorder.place.rank > 0 else 0
    yield equal("parameters without memory before the wrap", recorder.unallocated, expected)
    if recorder.options.cpu_ram_efficient_loading:
        yield equal("weights as rank 0's", recorder.synced is True, bound=True)


def state_dict_type(recorder: EngagementRecorder) -> Iterator[Check]:
    """Check the share of the model that this rank held while saving: all, nothing, or its shard."""
    if recorder.saved_entries is None:
        return  # nothing was saved
    kind, copies = recorder.options.state_dict_type, shards.copies(recorder.options)
    share = recorder.saved_entries / recorder.total_entries
    expected = 1.0
    if kind == "sharded":
        expected = copies / recorder.place.world_size
    elif kind != "full_on_device" and recorder.place.rank > 0:
        if copies > 1:
            return  # each copy has a rank 0; what it keeps costs only memory
        expected = 0.0
    yield at_least("share of the model that this rank held to save it", share, expected / shards.SLACK)
    yield at_most("share of the model that this rank held to save it", share, expected * shards.SLACK)


def summon_full_params(recorder: EngagementRecorder) -> Iterator[Check]:
    if recorder.root_whole is not None and recorder.options.summon_full_params:
        yield equal("root's weights whole before the generation", recorder.root_whole, bound=True)
