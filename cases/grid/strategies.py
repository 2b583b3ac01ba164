"""Cases of DDP's and FSDP's options, more ranks, and round trips under FSDP."""

from __future__ import annotations

from typing import Any

from cases.grid.sharded_round_trips import SHARDED_ROUND_TRIPS
from cases.grid.shared import FLAT, FSDP2_, NAMED, PEFT_POLICY, QLORA, SHARDED_QLORA
from cases.space.case import Case, case

DDP = "DDP"
FSDP1 = "FSDP1"
FSDP2 = "FSDP2"
DDP_SETTINGS = "DDP's options"
FOUR_RANKS = "Four ranks"
SHARDING = "FSDP1's sharding strategies"
HYBRID = "Hybrid sharding (HSDP)"
MIXED = "FSDP's mixed precision"
OFFLOADING = "Offloading to the CPU"
RANK_0 = "cpu_ram_efficient_loading"

FOUR: dict[str, Any] = {"world_size": 4}

STRATEGIES: tuple[Case, ...] = (
    case(
        DDP_SETTINGS,
        "find_unused_parameters, which users set when DDP reports unused parameters",
        strategy="ddp",
        find_unused_parameters=True,
    ),
    case(
        DDP_SETTINGS,
        "static_graph, which DDP recommends for reentrant checkpointing",
        strategy="ddp",
        static_graph=True,
        gradient_checkpointing="reentrant",
    ),
    case(
        DDP_SETTINGS,
        "find_unused_parameters with reentrant checkpointing, which Trainer users often combine",
        strategy="ddp",
        find_unused_parameters=True,
        gradient_checkpointing="reentrant",
    ),
    case(DDP_SETTINGS, "static_graph without checkpointing", strategy="ddp", static_graph=True, torch_dtype="bf16"),
    case(
        DDP_SETTINGS,
        "find_unused_parameters with static_graph, which finds unused parameters itself",
        strategy="ddp",
        static_graph=True,
        find_unused_parameters=True,
    ),
    case(
        DDP_SETTINGS,
        "gradient_as_bucket_view, which saves a copy of the gradients",
        method="full",
        strategy="ddp",
        gradient_as_bucket_view=True,
        optim="adamw",
    ),
    case(
        DDP_SETTINGS,
        "gradient_as_bucket_view for float32 adapters on a half-precision base",
        strategy="ddp",
        gradient_as_bucket_view=True,
        torch_dtype="bf16",
    ),
    case(
        DDP_SETTINGS,
        "QLoRA with static_graph: packed weights must not enter the buckets",
        strategy="ddp",
        static_graph=True,
        gradient_as_bucket_view=True,
        **QLORA,
    ),
    case(
        DDP_SETTINGS,
        "a resumed run: DDP rebuilds its buckets, and the moments come from the checkpoint",
        flow="resume",
        strategy="ddp",
        gradient_as_bucket_view=True,
        optim="adamw",
        torch_dtype="bf16",
    ),
    case(FOUR_RANKS, "DDP, the mean of four gradients", strategy="ddp", **FOUR),
    case(FOUR_RANKS, "DDP with QLoRA", strategy="ddp", **FOUR, **QLORA),
    case(FOUR_RANKS, "FSDP1, full fine-tuning: shards of a quarter", method="full", optim="adamw", **FOUR, **NAMED),
    case(FOUR_RANKS, "FSDP1, an adapter: some ranks hold none of its weights", **FOUR, **NAMED),
    case(FOUR_RANKS, "FSDP1 as documented for adapters", torch_dtype="bf16", **FOUR, **PEFT_POLICY),
    case(FOUR_RANKS, "FSDP1, QLoRA as documented", **FOUR, **SHARDED_QLORA, **PEFT_POLICY),
    case(FOUR_RANKS, "FSDP2, full fine-tuning: shards of a quarter", method="full", optim="adamw", **FOUR, **FSDP2_),
    case(FOUR_RANKS, "FSDP2, an adapter of 8 rows over 4 ranks", **FOUR, **FSDP2_),
    case(FOUR_RANKS, "FSDP2, DoRA: its norm is over a sharded dimension", method="dora", **FOUR, **FSDP2_),
    case(FOUR_RANKS, "FSDP2, QLoRA", **FOUR, **SHARDED_QLORA, **FSDP2_),
    case(
        FOUR_RANKS,
        "a sharded state dict of four ranks",
        flow="save_reload",
        state_dict_type="sharded",
        **FOUR,
        **FSDP2_,
    ),
    case(
        SHARDING,
        "weights stay unsharded until the backward pass",
        method="full",
        sharding_strategy="shard_grad_op",
        **NAMED,
    ),
    case(SHARDING, "SHARD_GRAD_OP with an adapter", sharding_strategy="shard_grad_op", **NAMED),
    case(
        SHARDING,
        "SHARD_GRAD_OP, PEFT's wrap policy",
        sharding_strategy="shard_grad_op",
        torch_dtype="bf16",
        **PEFT_POLICY,
    ),
    case(SHARDING, "SHARD_GRAD_OP with QLoRA", sharding_strategy="shard_grad_op", **SHARDED_QLORA, **PEFT_POLICY),
    case(
        SHARDING,
        "SHARD_GRAD_OP with checkpointing",
        sharding_strategy="shard_grad_op",
        gradient_checkpointing="non_reentrant",
        **NAMED,
    ),
    case(
        SHARDING,
        "NO_SHARD: FSDP1 replicates like DDP",
        method="full",
        sharding_strategy="no_shard",
        optim="adamw",
        **NAMED,
    ),
    case(SHARDING, "NO_SHARD with an adapter", sharding_strategy="no_shard", **NAMED),
    case(SHARDING, "NO_SHARD, PEFT's wrap policy", sharding_strategy="no_shard", torch_dtype="bf16", **PEFT_POLICY),
    case(
        SHARDING, "units by size, where the decoder layers are unknown", method="full", auto_wrap_policy="size", **NAMED
    ),
    case(SHARDING, "units by size, an adapter", auto_wrap_policy="size", **NAMED),
    case(
        SHARDING,
        "units by size, flat parameters that hold adapters and frozen weights",
        auto_wrap_policy="size",
        **FLAT,
    ),
    case(SHARDING, "DoRA, units by size", method="dora", auto_wrap_policy="size", **NAMED),
    case(HYBRID, "FSDP1, full fine-tuning", method="full", optim="adamw", device_mesh="hsdp", **FOUR, **NAMED),
    case(HYBRID, "FSDP1, an adapter", device_mesh="hsdp", **FOUR, **NAMED),
    case(HYBRID, "FSDP1, PEFT's wrap policy", device_mesh="hsdp", torch_dtype="bf16", **FOUR, **PEFT_POLICY),
    case(HYBRID, "FSDP1, QLoRA", device_mesh="hsdp", **FOUR, **SHARDED_QLORA, **PEFT_POLICY),
    case(HYBRID, "FSDP2, full fine-tuning", method="full", optim="adamw", device_mesh="hsdp", **FOUR, **FSDP2_),
    case(HYBRID, "FSDP2, an adapter", device_mesh="hsdp", **FOUR, **FSDP2_),
    case(
        HYBRID,
        "FSDP2, an adapter, layers kept whole",
        device_mesh="hsdp",
        reshard_after_forward=False,
        **FOUR,
        **FSDP2_,
    ),
    case(HYBRID, "FSDP2, DoRA on bfloat16", method="dora", device_mesh="hsdp", torch_dtype="bf16", **FOUR, **FSDP2_),
    case(HYBRID, "FSDP2, QLoRA", device_mesh="hsdp", **FOUR, **SHARDED_QLORA, **FSDP2_),
    case(HYBRID, "a full state dict of replicated shards", flow="save_reload", device_mesh="hsdp", **FOUR, **NAMED),
    case(
        HYBRID,
        "FSDP2: a full state dict of replicated shards",
        flow="save_reload",
        device_mesh="hsdp",
        **FOUR,
        **FSDP2_,
    ),
    case(
        HYBRID,
        "a sharded state dict: each shard once, although two ranks hold it",
        flow="resume",
        optim="adamw",
        device_mesh="hsdp",
        state_dict_type="sharded",
        **FOUR,
        **FSDP2_,
    ),
    case(MIXED, "FSDP1 as accelerate sets it: everything in bfloat16", method="full", mixed_precision="bf16", **NAMED),
    case(MIXED, "FSDP1, reduce_dtype float32", method="full", mixed_precision="bf16_reduce_fp32", **NAMED),
    case(MIXED, "FSDP1, an adapter", mixed_precision="bf16", **NAMED),
    case(MIXED, "FSDP1, an adapter, reduce_dtype float32", mixed_precision="bf16_reduce_fp32", **NAMED),
    case(MIXED, "FSDP1, DoRA: its norm comes from rounded weights", method="dora", mixed_precision="bf16", **NAMED),
    case(MIXED, "FSDP1 as documented for QLoRA", mixed_precision="bf16", **SHARDED_QLORA, **PEFT_POLICY),
    case(MIXED, "FSDP1 without shards", method="full", mixed_precision="bf16", sharding_strategy="no_shard", **NAMED),
    case(MIXED, "FSDP2, full fine-tuning", method="full", mixed_precision="bf16", **FSDP2_),
    case(MIXED, "FSDP2, reduce_dtype float32", method="full", mixed_precision="bf16_reduce_fp32", **FSDP2_),
    case(MIXED, "FSDP2, an adapter", mixed_precision="bf16", **FSDP2_),
    case(
        MIXED,
        "FSDP2, float32 adapters on a bfloat16 base compute in one dtype",
        mixed_precision="bf16_reduce_fp32",
        torch_dtype="bf16",
        **FSDP2_,
    ),
    case(MIXED, "FSDP2, DoRA", method="dora", mixed_precision="bf16_reduce_fp32", **FSDP2_),
    case(MIXED, "FSDP2, QLoRA", mixed_precision="bf16", **SHARDED_QLORA, **FSDP2_),
    case(MIXED, "FSDP2, an 8-bit base", mixed_precision="bf16", quant="int8", torch_dtype="bf16", **FSDP2_),
    case(
        MIXED,
        "the checkpoint holds the float32 weights, not the rounded ones",
        flow="save_reload",
        method="full",
        mixed_precision="bf16",
        **NAMED,
    ),
    case(
        MIXED,
        "FSDP2: the checkpoint holds the float32 weights, not the rounded ones",
        flow="save_reload",
        method="full",
        mixed_precision="bf16",
        **FSDP2_,
    ),
    case(OFFLOADING, "FSDP1, full fine-tuning", method="full", cpu_offload=True, optim="adamw", **NAMED),
    case(
        OFFLOADING,
        "FSDP1, QLoRA: the way to a large model on small GPUs",
        cpu_offload=True,
        **SHARDED_QLORA,
        **PEFT_POLICY,
    ),
    case(OFFLOADING, "FSDP2, full fine-tuning", method="full", cpu_offload=True, optim="adamw", **FSDP2_),
    case(OFFLOADING, "FSDP2, QLoRA", cpu_offload=True, **SHARDED_QLORA, **FSDP2_),
    case(
        OFFLOADING,
        "a checkpoint of weights and moments in CPU memory",
        flow="resume",
        cpu_offload=True,
        optim="adamw",
        **FSDP2_,
    ),
    case(
        RANK_0,
        "FSDP1, full fine-tuning",
        method="full",
        cpu_ram_efficient_loading=True,
        sync_module_states=True,
        **NAMED,
    ),
    case(
        RANK_0,
        "FSDP1, an adapter",
        cpu_ram_efficient_loading=True,
        sync_module_states=True,
        torch_dtype="bf16",
        **PEFT_POLICY,
    ),
    case(RANK_0, "FSDP2, full fine-tuning", method="full", cpu_ram_efficient_loading=True, **FSDP2_),
    case(RANK_0, "FSDP2, an adapter", cpu_ram_efficient_loading=True, **FSDP2_),
    case(
        RANK_0,
        "FSDP2, float32 adapters on a bfloat16 base",
        cpu_ram_efficient_loading=True,
        torch_dtype="bf16",
        **FSDP2_,
    ),
    case(
        RANK_0,
        "FSDP2, DoRA, whose initial magnitudes come from the weights",
        method="dora",
        cpu_ram_efficient_loading=True,
        **FSDP2_,
    ),
    case(
        RANK_0, "FSDP2, the whole model in one unit", cpu_ram_efficient_loading=True, auto_wrap_policy="none", **FSDP2_
    ),
    *SHARDED_ROUND_TRIPS,
)
