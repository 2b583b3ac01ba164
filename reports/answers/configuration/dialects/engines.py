"""Rules for the files of engines, to which a trainer's file refers by path: DeepSpeed's, and the Trainer's for FSDP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.answers.configuration.dialects import ENGINE, AnyValue, Dialect, UnmeasuredSetting
from reports.answers.configuration.dialects.accelerate import fsdp_rules
from reports.answers.configuration.dialects.trl import fsdp_defaults, fsdp_version_rules
from reports.answers.configuration.dialects.unmeasured import not_looked_at, unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from cases.space.options import Value

DEEPSPEED_MARKS = frozenset(
    {
        *("zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer", "steps_per_print"),
        *("wall_clock_breakdown", "zero_force_ds_cpu_optimizer", "fp16.enabled", "bf16.enabled", "optimizer.type"),
        *("scheduler.type", "train_batch_size", "communication_data_type", "tensor_parallel.autotp_size"),
    }
)
FSDP_KEYS = (
    *("use_orig_params", "sync_module_states", "cpu_ram_efficient_loading", "activation_checkpointing", "version"),
    *("transformer_layer_cls_to_wrap", "backward_prefetch", "forward_prefetch", "state_dict_type", "min_num_params"),
    *("auto_wrap_policy", "sharding_strategy", "xla", "reshard_after_forward", "offload_params", "limit_all_gathers"),
)
ANY_KEY = "|".join(each for key in FSDP_KEYS for each in (key, f"fsdp_{key}"))


def deepspeed_defaults(_values: Mapping[str, Value], _versions: Mapping[str, Version]) -> dict[str, Value]:
    return {}


def engine_defaults(_values: Mapping[str, Value], versions: Mapping[str, Version]) -> dict[str, Value]:
    return fsdp_defaults(versions)


DEEPSPEED = Dialect(
    name="DeepSpeed",
    role=ENGINE,
    marks=DEEPSPEED_MARKS,
    rules=(),
    defaults=deepspeed_defaults,
    not_judged=(
        UnmeasuredSetting("zero_optimization.stage", "DeepSpeed ZeRO stage {value}", (0, 1, 2, 3)),
        *unmeasured(
            ("zero_optimization.offload_optimizer.device", "an optimiser offloaded to {value}"),
            ("zero_optimization.offload_param.device", "parameters offloaded to {value}"),
            ("tensor_parallel.autotp_size", "tensor parallelism"),
            ("pipeline", "pipeline parallelism"),
            ("compile.deepcompile", "DeepCompile"),
        ),
    ),
)
FSDP_JSON = Dialect(
    name="FSDP settings of transformers",
    role=ENGINE,
    marks=frozenset({*FSDP_KEYS, *(f"fsdp_{key}" for key in FSDP_KEYS)} - {"version"}),
    rules=(
        *fsdp_version_rules(ANY_KEY, AnyValue(), "fsdp_version|version"),
        *fsdp_rules("", short=True),
    ),
    defaults=engine_defaults,
    not_judged=(
        *unmeasured(("xla", "FSDP on TPUs")),
        *not_looked_at(
            ("forward_prefetch", "prefetching of the next unit"),
            ("fsdp_forward_prefetch", "prefetching of the next unit"),
        ),
    ),
)
