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
    case(SCALING_LOSSES, "LoRA with AdamW, clipped after unscaling", optimiser="adamw", clip=True, **TURING),
    case(SCALING_LOSSES, "the scaler meets a fused optimiser", optimiser="adamw", stepping="fused", autocast="fp16"),
    case(SCALING_LOSSES, "QLoRA on a GPU without bfloat16", quant="nf4", optimiser="adamw", **TURING),
    case(SCALING_LOSSES, "clipped after unscaling", strategy="fsdp2", autocast="fp16", clip=True),
    case(SCALING_LOSSES, "accumulated, scaled and clipped", strategy="ddp", autocast="fp16", clip=True, accumulation=2),
    case(ACCUMULATING, "two micro-batches a step", accumulation=2),
    case(ACCUMULATING, "two micro-batches a step", strategy="ddp", accumulation=2),
    case(ACCUMULATING, "two micro-batches a step", accumulation=2, **NAMED),
    case(ACCUMULATING, "two micro-batches a step", strategy="fsdp2", accumulation=2),
    case(ACCUMULATING, "full fine-tuning", method="full", accumulation=2, **NAMED),
    case(ACCUMULATING, "full fine-tuning", method="full", strategy="fsdp2", accumulation=2, optimiser="adamw"),
    case(ACCUMULATING, "QLoRA", accumulation=2, **QLORA, **AS_DOCUMENTED),
    case(ACCUMULATING, "QDoRA", method="dora", accumulation=2, strategy="ddp", optimiser="adamw", **QLORA),
    case(ACCUMULATING, "with checkpointing", accumulation=2, strategy="ddp", checkpointing="non_reentrant"),
    case(ACCUMULATING, "with checkpointing", accumulation=2, strategy="fsdp2", checkpointing="non_reentrant"),
    case(ACCUMULATING, "clipped", clip=True),
    case(ACCUMULATING, "clipped", clip=True, strategy="ddp", accumulation=2, load_dtype="bf16"),
    case(ACCUMULATING, "clipped by FSDP1's own method", clip=True, **NAMED),
    case(ACCUMULATING, "clipped by FSDP1's own method", clip=True, load_dtype="bf16", wrap="peft", **FLAT),
    case(
        ACCUMULATING,
        "clipped, as QLoRA is under FSDP1",
        clip=True,
        accumulation=2,
        optimiser="adamw",
        **DOUBLE,
        **AS_DOCUMENTED,
    ),
    case(ACCUMULATING, "clipped", clip=True, method="full", strategy="fsdp2"),
    case(ACCUMULATING, "clipped", clip=True, accumulation=2, strategy="fsdp2", optimiser="adamw", **QLORA, **SHARDABLE),
    case(
        ACCUMULATING,
        "stopped and resumed",
        flow="resume",
        strategy="fsdp2",
        optimiser="adamw",
        accumulation=2,
        clip=True,
    ),
    case(STATE_IN_8_BITS, "full fine-tuning", method="full", optimiser="adamw_8bit"),
    case(STATE_IN_8_BITS, "LoRA", load_dtype="bf16", optimiser="adamw_8bit"),
    case(STATE_IN_8_BITS, "QLoRA, paged as in its paper", optimiser="paged_adamw_8bit", **DOUBLE),
    case(STATE_IN_8_BITS, "LoRA", strategy="ddp", optimiser="adamw_8bit"),
    case(STATE_IN_8_BITS, "full fine-tuning", method="full", optimiser="adamw_8bit", **NAMED),
    case(STATE_IN_8_BITS, "QLoRA", optimiser="adamw_8bit", **QLORA, **AS_DOCUMENTED),
    case(STATE_IN_8_BITS, "LoRA", strategy="fsdp2", optimiser="adamw_8bit"),
    case(STATE_IN_8_BITS, "stopped and resumed", flow="resume", optimiser="adamw_8bit"),
    case(STATE_IN_8_BITS, "stopped and resumed", flow="resume", strategy="ddp", optimiser="adamw_8bit"),
    case(STATE_IN_8_BITS, "stopped and resumed", flow="resume", optimiser="adamw_8bit", **NAMED),
    case(STEPPING, "SGD over lists of tensors", stepping="foreach"),
    case(STEPPING, "SGD in one kernel", stepping="fused", method="full"),
    case(STEPPING, "AdamW in one kernel, what trainers choose", stepping="fused", optimiser="adamw"),
    case(STEPPING, "AdamW over lists of tensors", stepping="foreach", optimiser="adamw", load_dtype="bf16"),
    case(STEPPING, "AdamW in one kernel", stepping="fused", optimiser="adamw", strategy="ddp"),
    case(STEPPING, "AdamW in one kernel", stepping="fused", optimiser="adamw", **NAMED),
    case(STEPPING, "AdamW in one kernel", stepping="fused", optimiser="adamw", strategy="fsdp2"),
    case(
        STEPPING, "AdamW over lists of tensors", stepping="foreach", optimiser="adamw", strategy="fsdp2", method="full"
    ),
    case(STEPPING, "stopped and resumed", flow="resume", stepping="fused", optimiser="adamw"),
    case(STEPPING, "stopped and resumed", flow="resume", stepping="fused", optimiser="adamw", strategy="fsdp2"),
    case(COMPILING, "LoRA", compile=True),
    case(COMPILING, "LoRA", compile=True, strategy="ddp"),
    case(COMPILING, "full fine-tuning", compile=True, method="full", strategy="fsdp2"),
)
