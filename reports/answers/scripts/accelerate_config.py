"""A configuration of accelerate that asks for what a case asks for, as ``accelerate config`` writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cases.model import architectures
from cases.space.options import SHARDED

if TYPE_CHECKING:
    from cases.space.options import Options

WRAPPERS: Final = {"transformer": "TRANSFORMER_BASED_WRAP", "size": "SIZE_BASED_WRAP", "none": "NO_WRAP"}
SHARDING: Final = {"full_shard": "FULL_SHARD", "shard_grad_op": "SHARD_GRAD_OP", "no_shard": "NO_SHARD"}
# What it has no key for.
UNSAID: Final = {
    "auto_wrap_policy": ("peft",),
    "device_mesh": ("hsdp",),
    "mixed_precision": ("bf16_reduce_fp32",),
    "state_dict_type": ("full_on_device", "full_dcp"),
}


def says(options: Options) -> bool:
    """Whether there is such a configuration."""
    unsaid = (options.stated.get(name) in values for name, values in UNSAID.items())
    return options.strategy != "single" and not any(unsaid)


def lines(options: Options) -> list[str]:
    precision = "bf16" if options.mixed_precision == "bf16" else {"off": "'no'"}.get(options.autocast, options.autocast)
    return [
        "compute_environment: LOCAL_MACHINE",
        f"distributed_type: {'FSDP' if options.strategy in SHARDED else 'MULTI_GPU'}",
        f"mixed_precision: {precision}",
        "num_machines: 1",
        f"num_processes: {options.world_size}",
        *(["fsdp_config:", *(f"  {line}" for line in fsdp_config(options))] if options.strategy in SHARDED else []),
    ]


def fsdp_config(options: Options) -> list[str]:
    layers = ",".join(architectures.spec(options).block)
    by_version = {
        "fsdp1": [
            "fsdp_version: 1",
            f"fsdp_sharding_strategy: {SHARDING[options.sharding_strategy]}",
            f"fsdp_use_orig_params: {yes(options.use_orig_params)}",
            f"fsdp_sync_module_states: {yes(options.sync_module_states)}",
        ],
        "fsdp2": ["fsdp_version: 2", f"fsdp_reshard_after_forward: {yes(options.reshard_after_forward)}"],
    }
    state = "SHARDED_STATE_DICT" if options.state_dict_type == "sharded" else "FULL_STATE_DICT"
    return [
        *by_version[options.strategy],
        f"fsdp_auto_wrap_policy: {WRAPPERS[options.auto_wrap_policy]}",
        *([f"fsdp_transformer_layer_cls_to_wrap: {layers}"] if options.auto_wrap_policy == "transformer" else []),
        f"fsdp_offload_params: {yes(options.cpu_offload)}",
        f"fsdp_cpu_ram_efficient_loading: {yes(options.cpu_ram_efficient_loading)}",
        f"fsdp_state_dict_type: {state}",
    ]


def yes(value: bool) -> str:  # noqa: FBT001 - it is what is written
    return str(value).lower()
