"""Cases of saving, resuming, merging and generating under FSDP."""

from __future__ import annotations

from cases.grid.shared import FLAT, FSDP2_, NAMED, PEFT_POLICY, QLORA, SHARDED_QLORA
from cases.space.case import Case, case

WHOLE_OR_SHARDED = "Saving under FSDP"
RESUMING_SHARDED = "Resuming under FSDP"
MERGING_SHARDED = "Merging under FSDP"
GENERATING_SHARDED = "Generating under FSDP"

SHARDED_ROUND_TRIPS: tuple[Case, ...] = (
    case(WHOLE_OR_SHARDED, "FSDP1, full fine-tuning", flow="save_reload", method="full", **NAMED),
    case(WHOLE_OR_SHARDED, "full fine-tuning, flat parameters", flow="save_reload", method="full", **FLAT),
    case(
        WHOLE_OR_SHARDED,
        "an adapter, a full state dict on every rank",
        flow="save_reload",
        state_dict_type="full_on_device",
        **NAMED,
    ),
    case(
        WHOLE_OR_SHARDED,
        "an adapter, saved by torch.distributed.checkpoint",
        flow="save_reload",
        state_dict_type="full_dcp",
        **NAMED,
    ),
    case(WHOLE_OR_SHARDED, "an adapter, no layer wrapped", flow="save_reload", auto_wrap_policy="none", **NAMED),
    case(WHOLE_OR_SHARDED, "an adapter, PEFT's wrap policy", flow="save_reload", torch_dtype="bf16", **PEFT_POLICY),
    case(WHOLE_OR_SHARDED, "QLoRA as documented", flow="save_reload", **SHARDED_QLORA, **PEFT_POLICY),
    case(
        WHOLE_OR_SHARDED,
        "QLoRA, sharded: packed weights in a distributed checkpoint",
        flow="save_reload",
        state_dict_type="sharded",
        **SHARDED_QLORA,
        **PEFT_POLICY,
    ),
    case(WHOLE_OR_SHARDED, "DoRA and its magnitudes", flow="save_reload", method="dora", **NAMED),
    case(WHOLE_OR_SHARDED, "FSDP2, DoRA", flow="save_reload", method="dora", **FSDP2_),
    case(
        WHOLE_OR_SHARDED,
        "FSDP2, a full state dict on every rank",
        flow="save_reload",
        state_dict_type="full_on_device",
        **FSDP2_,
    ),
    case(WHOLE_OR_SHARDED, "FSDP2, QLoRA", flow="save_reload", **SHARDED_QLORA, **FSDP2_),
    case(
        WHOLE_OR_SHARDED,
        "FSDP2, QLoRA, sharded",
        flow="save_reload",
        state_dict_type="sharded",
        **SHARDED_QLORA,
        **FSDP2_,
    ),
    case(WHOLE_OR_SHARDED, "DDP, QLoRA", flow="save_reload", strategy="ddp", **QLORA),
    case(RESUMING_SHARDED, "FSDP1, full fine-tuning", flow="resume", method="full", optim="adamw", **NAMED),
    case(RESUMING_SHARDED, "full fine-tuning, flat parameters", flow="resume", method="full", optim="adamw", **FLAT),
    case(
        RESUMING_SHARDED,
        "the full state dict on every rank's device",
        flow="resume",
        optim="adamw",
        state_dict_type="full_on_device",
        **NAMED,
    ),
    case(
        RESUMING_SHARDED,
        "state dicts of torch.distributed.checkpoint",
        flow="resume",
        optim="adamw",
        state_dict_type="full_dcp",
        **NAMED,
    ),
    case(RESUMING_SHARDED, "PEFT's wrap policy", flow="resume", optim="adamw", torch_dtype="bf16", **PEFT_POLICY),
    case(RESUMING_SHARDED, "QLoRA as documented", flow="resume", optim="adamw", **SHARDED_QLORA, **PEFT_POLICY),
    case(RESUMING_SHARDED, "FSDP1, SGD, which has no moments", flow="resume", **NAMED),
    case(
        RESUMING_SHARDED,
        "NO_SHARD: every rank holds all moments",
        flow="resume",
        method="full",
        optim="adamw",
        sharding_strategy="no_shard",
        **NAMED,
    ),
    case(RESUMING_SHARDED, "FSDP2, full fine-tuning", flow="resume", method="full", optim="adamw", **FSDP2_),
    case(RESUMING_SHARDED, "FSDP2, DoRA", flow="resume", method="dora", optim="adamw", **FSDP2_),
    case(RESUMING_SHARDED, "FSDP2, QLoRA", flow="resume", optim="adamw", **SHARDED_QLORA, **FSDP2_),
    case(
        RESUMING_SHARDED,
        "FSDP2, QLoRA, sharded",
        flow="resume",
        optim="adamw",
        state_dict_type="sharded",
        **SHARDED_QLORA,
        **FSDP2_,
    ),
    case(MERGING_SHARDED, "FSDP1, PEFT's wrap policy", flow="merge", torch_dtype="bf16", **PEFT_POLICY),
    case(MERGING_SHARDED, "FSDP1, DoRA", flow="merge", method="dora", **NAMED),
    case(MERGING_SHARDED, "FSDP1, QLoRA", flow="merge", **SHARDED_QLORA, **PEFT_POLICY),
    case(MERGING_SHARDED, "FSDP2, DoRA", flow="merge", method="dora", **FSDP2_),
    case(MERGING_SHARDED, "FSDP2, QLoRA", flow="merge", **SHARDED_QLORA, **FSDP2_),
    case(MERGING_SHARDED, "FSDP2, a bfloat16 base", flow="merge", torch_dtype="bf16", **FSDP2_),
    case(MERGING_SHARDED, "FSDP1: gathered, merged and saved", flow="merge_reload", **NAMED),
    case(MERGING_SHARDED, "FSDP2: gathered, merged and saved", flow="merge_reload", **FSDP2_),
    case(MERGING_SHARDED, "FSDP2, QLoRA: gathered, merged and saved", flow="merge_reload", **SHARDED_QLORA, **FSDP2_),
    case(MERGING_SHARDED, "FSDP2, mixed precision", flow="merge_reload", mixed_precision="bf16", **FSDP2_),
    case(
        GENERATING_SHARDED,
        "FSDP1, the root's parameters gathered first",
        flow="generate",
        summon_full_params=True,
        **NAMED,
    ),
    case(
        GENERATING_SHARDED,
        "FSDP1, flat parameters, the root's parameters gathered first",
        flow="generate",
        summon_full_params=True,
        torch_dtype="bf16",
        **PEFT_POLICY,
    ),
    case(
        GENERATING_SHARDED, "FSDP1, full fine-tuning", flow="generate", method="full", summon_full_params=True, **NAMED
    ),
    case(
        GENERATING_SHARDED,
        "FSDP2, the root's parameters gathered first",
        flow="generate",
        summon_full_params=True,
        **FSDP2_,
    ),
    case(GENERATING_SHARDED, "FSDP2, DoRA", flow="generate", method="dora", summon_full_params=True, **FSDP2_),
    case(GENERATING_SHARDED, "FSDP2, QLoRA", flow="generate", summon_full_params=True, **SHARDED_QLORA, **FSDP2_),
    case(
        GENERATING_SHARDED,
        "FSDP2, layers unsharded since the last forward",
        flow="generate",
        reshard_after_forward=False,
        **FSDP2_,
    ),
)
