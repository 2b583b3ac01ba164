"""Rules for the ``default_config.yaml`` of ``accelerate config``, which launches processes and configures sharding."""

# ruff: noqa: FBT003 - values of flags, in rules of a table
from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from reports.answers.configuration.dialects import LAUNCHER, NEWEST, AnyValue, Dialect, Rule
from reports.answers.configuration.dialects.unmeasured import ACCELERATE_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Value

FSDP = "fsdp_config."
# Releases of accelerate that changed a default of `accelerate launch`, according to their sources.
ORIG_PARAMS_BY_DEFAULT = Version("0.25")
RAM_EFFICIENT_BY_DEFAULT = Version("0.24")


def defaults(values: Mapping[str, Value], versions: Mapping[str, Version]) -> dict[str, Value]:
    accelerate = versions.get("accelerate", NEWEST["accelerate"])
    usual: dict[str, Value] = {"front_end": "accelerate", "optim": "adamw"}
    if values.get("strategy") in ("fsdp1", "fsdp2"):
        usual |= {"auto_wrap_policy": "none", "state_dict_type": "full", "reshard_after_forward": True}
        usual |= {"use_orig_params": accelerate >= ORIG_PARAMS_BY_DEFAULT, "sync_module_states": True}
        usual |= {"cpu_ram_efficient_loading": accelerate >= RAM_EFFICIENT_BY_DEFAULT}
    return usual


def fsdp_rules(prefix: str, *, short: bool = False) -> tuple[Rule, ...]:
    """Return the rules of FSDP settings below a prefix. ``short`` also accepts keys without ``fsdp_``."""

    def key(name: str) -> str:
        return f"{prefix}fsdp_{name}|{prefix}{name}" if short else f"{prefix}fsdp_{name}"

    return (
        Rule("use_orig_params", True, {key("use_orig_params"): True}),
        Rule("use_orig_params", False, {key("use_orig_params"): False}),
        Rule("auto_wrap_policy", "transformer", {key("auto_wrap_policy"): "TRANSFORMER_BASED_WRAP"}),
        Rule("auto_wrap_policy", "size", {key("auto_wrap_policy"): "SIZE_BASED_WRAP"}),
        Rule("auto_wrap_policy", "none", {key("auto_wrap_policy"): "NO_WRAP"}),
        Rule("sharding_strategy", "full_shard", {key("sharding_strategy"): ("FULL_SHARD", 1)}),
        Rule("sharding_strategy", "shard_grad_op", {key("sharding_strategy"): ("SHARD_GRAD_OP", 2)}),
        Rule("sharding_strategy", "no_shard", {key("sharding_strategy"): ("NO_SHARD", 3)}),
        Rule("device_mesh", "hsdp", {key("sharding_strategy"): ("HYBRID_SHARD", 4)}),
        # The key has two meanings: a flag for FSDP2, and for FSDP1 (accelerate 1.6 and newer) the sharding strategy.
        Rule("reshard_after_forward", True, {key("reshard_after_forward"): True}),
        Rule("reshard_after_forward", False, {key("reshard_after_forward"): False}),
        Rule("sharding_strategy", "full_shard", {key("reshard_after_forward"): "FULL_SHARD"}),
        Rule("sharding_strategy", "shard_grad_op", {key("reshard_after_forward"): "SHARD_GRAD_OP"}),
        Rule("sharding_strategy", "no_shard", {key("reshard_after_forward"): "NO_SHARD"}),
        Rule("state_dict_type", "full", {key("state_dict_type"): "FULL_STATE_DICT"}),
        Rule("state_dict_type", "sharded", {key("state_dict_type"): "SHARDED_STATE_DICT"}),
        Rule("cpu_offload", True, {key("offload_params"): True}),
        Rule("cpu_offload", False, {key("offload_params"): False}),
        Rule("cpu_ram_efficient_loading", True, {key("cpu_ram_efficient_loading"): True}),
        Rule("cpu_ram_efficient_loading", False, {key("cpu_ram_efficient_loading"): False}),
        Rule("sync_module_states", True, {key("sync_module_states"): True}),
        Rule("sync_module_states", False, {key("sync_module_states"): False}),
        # accelerate applies torch's checkpoint wrapper, in its non-reentrant mode
        Rule("gradient_checkpointing", "non_reentrant", {key("activation_checkpointing"): True}),
    )


ACCELERATE = Dialect(
    name="accelerate",
    role=LAUNCHER,
    marks=frozenset(
        {"distributed_type", "compute_environment", "machine_rank", "main_training_function", "num_machines"}
    ),
    rules=(
        Rule("strategy", "fsdp2", {"distributed_type": "FSDP", f"{FSDP}fsdp_version": 2}),
        Rule("strategy", "fsdp1", {"distributed_type": "FSDP", f"{FSDP}fsdp_version": (1, None)}),
        Rule("strategy", "single", {"distributed_type": ("NO", None), "num_processes": (1, None)}),
        Rule("strategy", "single", {"distributed_type": "MULTI_GPU", "num_processes": 1}),
        Rule("strategy", "ddp", {"distributed_type": ("MULTI_GPU", "MULTI_CPU")}),
        *fsdp_rules(FSDP),
        Rule("amp", "bf16", {"mixed_precision": "bf16"}),
        Rule("amp", "fp16", {"mixed_precision": "fp16"}),
        Rule("amp", "off", {"mixed_precision": "no"}),
        Rule("world_size", 4, {"num_processes": 4}),
        Rule("gradient_accumulation_steps", 1, {"gradient_accumulation_steps": 1}),
        Rule("torch_compile", False, {"dynamo_config.dynamo_backend": ("NO", None)}),
        Rule("torch_compile", True, {"dynamo_config.dynamo_backend": AnyValue()}),
    ),
    defaults=defaults,
    not_judged=ACCELERATE_ROWS,
    references=("deepspeed_config.deepspeed_config_file",),
)
