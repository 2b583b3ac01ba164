"""Rows as users have them: padded, with prompts that are not learned, uneven between ranks and micro-batches."""

from __future__ import annotations

from cases.grid.shared import INT8, NAMED, PEFT_POLICY, QLORA
from cases.space.case import Case, case

PADDED = "Padded rows"
MASKED = "Prompts that are not learned"
SCALED = "Scaled rotary positions"

DATA: tuple[Case, ...] = (
    case(PADDED, "full fine-tuning, padded on the right", method="full", data="padded_right"),
    case(PADDED, "full fine-tuning, padded on the left", method="full", data="padded_left"),
    case(PADDED, "LoRA in bfloat16", data="padded_right", torch_dtype="bf16"),
    case(PADDED, "eager attention", data="padded_left", attn_implementation="eager"),
    case(PADDED, "torch's scaled_dot_product_attention", data="padded_left", attn_implementation="sdpa"),
    case(PADDED, "micro-batches with different numbers of tokens", data="padded_right", gradient_accumulation_steps=2),
    case(PADDED, "ranks with different numbers of tokens", data="padded_right", strategy="ddp"),
    case(
        PADDED,
        "ranks and micro-batches with different numbers of tokens",
        data="padded_right",
        strategy="ddp",
        gradient_accumulation_steps=2,
    ),
    case(PADDED, "FSDP1", data="padded_right", **NAMED),
    case(PADDED, "FSDP1 with PEFT's wrap policy", data="padded_left", torch_dtype="bf16", **PEFT_POLICY),
    case(PADDED, "FSDP2", data="padded_left", strategy="fsdp2"),
    case(PADDED, "QLoRA", data="padded_right", **QLORA),
    case(PADDED, "an 8-bit base", data="padded_right", **INT8),
    case(PADDED, "checkpointing", data="padded_left", gradient_checkpointing="non_reentrant"),
    case(PADDED, "accelerate", data="padded_right", front_end="accelerate", gradient_accumulation_steps=2),
    case(PADDED, "virtual tokens before padding on the left", data="padded_left", method="prompt"),
    case(PADDED, "a prefix before padded rows", data="padded_right", method="prefix"),
    *(
        case(PADDED, f"{name}, padded on the {side}", model=model, method="full", data=f"padded_{side}")
        for model, name in (
            ("qwen", "Qwen 2"),
            ("qwen3", "Qwen 3"),
            ("mistral", "Mistral's sliding window"),
            ("gpt2", "GPT-2"),
            ("mixtral", "Mixtral"),
        )
        for side in ("right", "left")
    ),
    case(
        PADDED,
        "Gemma 2's sliding windows, padded on the left",
        model="gemma",
        method="full",
        attn_implementation="eager",
        data="padded_left",
    ),
    case(MASKED, "full fine-tuning", method="full", data="prompt_masked"),
    case(MASKED, "LoRA", data="prompt_masked", torch_dtype="bf16"),
    case(MASKED, "micro-batches", data="prompt_masked", gradient_accumulation_steps=2),
    case(MASKED, "DDP", data="prompt_masked", strategy="ddp"),
    case(MASKED, "FSDP2", data="prompt_masked", strategy="fsdp2"),
    case(MASKED, "QLoRA", data="prompt_masked", **QLORA),
    *(
        row
        for kind in ("linear", "dynamic", "llama3")
        for row in (
            case(SCALED, "loading a model", flow="load", method="full", rope_scaling=kind),
            case(SCALED, "full fine-tuning", method="full", rope_scaling=kind),
            case(SCALED, "generation from a cache", flow="generate", rope_scaling=kind),
        )
    ),
)
