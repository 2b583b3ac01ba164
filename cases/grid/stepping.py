"""From the loss to the step: scaling, accumulating, clipping, optimisers, compilation."""

from __future__ import annotations

from cases.grid.shared import AS_DOCUMENTED, DOUBLE, FLAT, NAMED, QLORA, SHARDABLE, TURING
from cases.space.case import Case, case

FSDP1 = "FSDP1"
SCALING_LOSSES = "float16 with a gradient scaler"
ACCUMULATING = "Accumulating and clipping gradients"
STATE_IN_8_BITS = "Optimisers with 8-bit state"
STEPPING = "Fused and foreach optimisers"
COMPILING = "torch.compile"

STEPS: tuple[Case, ...] = (
    case(SCALING_LOSSES, "full fine-tuning", method="full", strategy="ddp", autocast="fp16"),
    case(SCALING_LOSSES, "full fine-tuning, FSDP1's own scaler", method="full", autocast="fp16", **NAMED),
    case(SCALING_LOSSES, "full fine-tuning", method="full", strategy="fsdp2", autocast="fp16"),
    case(SCALING_LOSSES, "LoRA with AdamW, clipped after unscaling", optim="adamw", clip_grad_norm=True, **TURING),
    case(
        SCALING_LOSSES,
        "a gradient scaler with a fused optimiser",
        optim="adamw",
        optim_implementation="fused",
        autocast="fp16",
    ),
    case(SCALING_LOSSES, "QLoRA on a GPU without bfloat16", quant="nf4", optim="adamw", **TURING),
    case(SCALING_LOSSES, "clipped after unscaling", strategy="fsdp2", autocast="fp16", clip_grad_norm=True),
    case(
        SCALING_LOSSES,
        "accumulated, scaled and clipped",
        strategy="ddp",
        autocast="fp16",
        clip_grad_norm=True,
        gradient_accumulation_steps=2,
    ),
    case(ACCUMULATING, "two micro-batches a step", gradient_accumulation_steps=2),
    case(ACCUMULATING, "two micro-batches a step", strategy="ddp", gradient_accumulation_steps=2),
    case(ACCUMULATING, "two micro-batches a step", gradient_accumulation_steps=2, **NAMED),
    case(ACCUMULATING, "two micro-batches a step", strategy="fsdp2", gradient_accumulation_steps=2),
    case(ACCUMULATING, "full fine-tuning", method="full", gradient_accumulation_steps=2, **NAMED),
    case(
        ACCUMULATING, "full fine-tuning", method="full", strategy="fsdp2", gradient_accumulation_steps=2, optim="adamw"
    ),
    case(ACCUMULATING, "QLoRA", gradient_accumulation_steps=2, **QLORA, **AS_DOCUMENTED),
    case(ACCUMULATING, "QDoRA", method="dora", gradient_accumulation_steps=2, strategy="ddp", optim="adamw", **QLORA),
    case(
        ACCUMULATING,
        "with checkpointing",
        gradient_accumulation_steps=2,
        strategy="ddp",
        gradient_checkpointing="non_reentrant",
    ),
    case(
        ACCUMULATING,
        "with checkpointing",
        gradient_accumulation_steps=2,
        strategy="fsdp2",
        gradient_checkpointing="non_reentrant",
    ),
    case(ACCUMULATING, "clipped", clip_grad_norm=True),
    case(
        ACCUMULATING, "clipped", clip_grad_norm=True, strategy="ddp", gradient_accumulation_steps=2, torch_dtype="bf16"
    ),
    case(ACCUMULATING, "clipped by FSDP1's own method", clip_grad_norm=True, **NAMED),
    case(
        ACCUMULATING,
        "clipped by FSDP1's own method",
        clip_grad_norm=True,
        torch_dtype="bf16",
        auto_wrap_policy="peft",
        **FLAT,
    ),
    case(
        ACCUMULATING,
        "gradient clipping, as for QLoRA under FSDP1",
        clip_grad_norm=True,
        gradient_accumulation_steps=2,
        optim="adamw",
        **DOUBLE,
        **AS_DOCUMENTED,
    ),
    case(ACCUMULATING, "clipped", clip_grad_norm=True, method="full", strategy="fsdp2"),
    case(
        ACCUMULATING,
        "clipped",
        clip_grad_norm=True,
        gradient_accumulation_steps=2,
        strategy="fsdp2",
        optim="adamw",
        **QLORA,
        **SHARDABLE,
    ),
    case(
        ACCUMULATING,
        "interrupted and resumed",
        flow="resume",
        strategy="fsdp2",
        optim="adamw",
        gradient_accumulation_steps=2,
        clip_grad_norm=True,
    ),
    case(STATE_IN_8_BITS, "full fine-tuning", method="full", optim="adamw_8bit"),
    case(STATE_IN_8_BITS, "LoRA", torch_dtype="bf16", optim="adamw_8bit"),
    case(STATE_IN_8_BITS, "QLoRA, paged as in its paper", optim="paged_adamw_8bit", **DOUBLE),
    case(STATE_IN_8_BITS, "LoRA", strategy="ddp", optim="adamw_8bit"),
    case(STATE_IN_8_BITS, "full fine-tuning", method="full", optim="adamw_8bit", **NAMED),
    case(STATE_IN_8_BITS, "QLoRA", optim="adamw_8bit", **QLORA, **AS_DOCUMENTED),
    case(STATE_IN_8_BITS, "LoRA", strategy="fsdp2", optim="adamw_8bit"),
    case(STATE_IN_8_BITS, "interrupted and resumed", flow="resume", optim="adamw_8bit"),
    case(STATE_IN_8_BITS, "interrupted and resumed", flow="resume", strategy="ddp", optim="adamw_8bit"),
    case(STATE_IN_8_BITS, "interrupted and resumed", flow="resume", optim="adamw_8bit", **NAMED),
    case(STEPPING, "SGD, foreach", optim_implementation="foreach"),
    case(STEPPING, "SGD, fused", optim_implementation="fused", method="full"),
    case(STEPPING, "AdamW, fused, the trainers' default", optim_implementation="fused", optim="adamw"),
    case(STEPPING, "AdamW, foreach", optim_implementation="foreach", optim="adamw", torch_dtype="bf16"),
    case(STEPPING, "AdamW, fused", optim_implementation="fused", optim="adamw", strategy="ddp"),
    case(STEPPING, "AdamW, fused", optim_implementation="fused", optim="adamw", **NAMED),
    case(STEPPING, "AdamW, fused", optim_implementation="fused", optim="adamw", strategy="fsdp2"),
    case(
        STEPPING,
        "AdamW, foreach",
        optim_implementation="foreach",
        optim="adamw",
        strategy="fsdp2",
        method="full",
    ),
    case(STEPPING, "interrupted and resumed", flow="resume", optim_implementation="fused", optim="adamw"),
    case(
        STEPPING,
        "interrupted and resumed",
        flow="resume",
        optim_implementation="fused",
        optim="adamw",
        strategy="fsdp2",
    ),
    case(COMPILING, "LoRA", torch_compile=True),
    case(COMPILING, "LoRA", torch_compile=True, strategy="ddp"),
    case(COMPILING, "full fine-tuning", torch_compile=True, method="full", strategy="fsdp2"),
)
