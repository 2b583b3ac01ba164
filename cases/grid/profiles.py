"""The profiles: cases, version sets and repeats of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cases import api, grid
from cases.apply.attention import BACK_ENDS
from cases.space.options import FOUR_BIT, MESH_RANKS, SHARDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cases.space.case import Case
    from cases.space.options import Options


@dataclass(frozen=True)
class Profile:
    """``sets`` is the default of ``--sets``; ``across`` moves adapters from every set to every other one."""

    name: str
    why: str
    cases: tuple[Case, ...]
    sets: str = "default"
    repeats: int = 1
    across: bool = False


EVERY: tuple[Case, ...] = (*grid.DEFAULT, *grid.FULL, *grid.MORE, *grid.commands(), *grid.calls("api", "behaviour"))
BY_ID = {case.id: case for case in EVERY}
# The most common jobs, one case each.
QUICK = (
    "load-single-bf16",
    "load-nf4-single-bf16",
    "train-full-single-fp32",
    "train-lora-single-bf16",
    "train-lora-nf4-single-bf16",
    "train-lora-int8-single-bf16",
    "train-lora-ddp-bf16",
    "train-lora-nf4-ddp-bf16",
    "train-lora-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16",
    "train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16",
    "train-lora-fsdp2-bf16",
    "train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp2-bf16",
    "train-dora-fsdp2-bf16",
    "save_reload-lora-single-fp32",
    "merge_reload-lora-single-fp32",
)


# Cases after training and of front ends, in addition to ``grid.DEFAULT``.
ROUND_TRIPS = (
    "save_reload-full-single-fp32",
    "save_reload-lora-single-bf16",
    "save_reload-lora-nf4-single-bf16",
    "save_reload-lora-fsdp1-fp32",
    "save_reload-lora-fsdp2-fp32",
    "save_reload-full-fsdp2-fp32",
    "resume-lora-single-fp32-adamw",
    "resume-lora-ddp-fp32-adamw",
    "resume-lora-fsdp1-fp32-state_dict_type_sharded-adamw",
    "resume-lora-fsdp2-fp32-adamw",
    "merge-lora-single-bf16",
    "merge-dora-single-fp32",
    "merge-lora-nf4-single-bf16",
    "merge-lora-int8-single-bf16",
    "merge_reload-lora-single-fp32",
    "merge_reload-lora-nf4-single-bf16",
    "generate-lora-single-fp32",
    "generate-lora-fsdp2-fp32",
    "portability-lora-single-fp32",
    "train-lora-ddp-fp32-adamw-trainer",
    "train-lora-nf4-single-bf16-sft",
    "train-lora-qwen-single-bf16",
    "train-lora-gpt2-single-fp32",
    "train-lora-mixtral-single-fp32",
)


NEED_GPUS = frozenset(
    {"another_device", "gpu_memory", "paged_state", "fp8_gpu", "float8_gather", "torchao"}
)  # of calls


def on_gpus(case: Case) -> bool:
    """Return whether a case needs a GPU: a CPU has other kernels, or none, and Gloo instead of NCCL."""
    options = case.options
    return (
        options.attn_implementation in (*BACK_ENDS, "flash_attention_2")
        or options.optim.endswith("8bit")
        or options.optim_implementation == "fused"
        or options.torch_compile
        or options.cpu_offload
        or (options.front_end != "loop" and options.strategy in SHARDED)
        or (options.world_size > 1 and case in grid.DEFAULT)
        or options.world_size == MESH_RANKS
        or one_dtype(options)
        or bool(NEED_GPUS & set(api.requirements(options.call)))
    )


def one_dtype(options: Options) -> bool:
    """Return whether FSDP2's units are bfloat16 throughout: then packed weights are copied as numbers."""
    is_packed = options.strategy == "fsdp2" and options.quant in FOUR_BIT and options.bnb_4bit_quant_storage == "bf16"
    return is_packed and (not options.autocast_adapter_dtype or options.mixed_precision == "bf16")


def named(ids: Iterable[str]) -> tuple[Case, ...]:
    return tuple(BY_ID[name] for name in ids)


def carried(case: Case, source: str) -> Case:
    """The case that continues with a checkpoint of another version set."""
    return replace(case, source=source)


FULL = tuple(
    dict.fromkeys((*grid.DEFAULT, *named(ROUND_TRIPS), *grid.FULL, *grid.commands(), *grid.calls("behaviour")))
)
PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("quick", "the most common jobs on the newest set, about a minute", named(QUICK), sets="newest"),
        Profile(
            "default",
            "the most common jobs, on four sets from two and a half years",
            (*grid.DEFAULT, *named(ROUND_TRIPS)),
        ),
        Profile(
            "full", "every value of every option, every informative pair, and documented behaviour", FULL, sets="newest"
        ),
        Profile(
            "nightly",
            "all cases twice, with API calls and adapters that move between sets; repeats reveal flaky cells",
            EVERY,
            repeats=2,
            across=True,
        ),
        Profile(
            "gpu",
            "cases that need GPUs: NCCL, attention kernels, paged optimisers, offloading, compilation, devices, memory",
            tuple(case for case in EVERY if on_gpus(case)),
            sets="newest",
        ),
    )
}
