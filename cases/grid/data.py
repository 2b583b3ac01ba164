"""Rows as users have them: padded, with prompts that are not learned, uneven between ranks and micro-batches."""

from __future__ import annotations

from typing import Any

from cases.grid.shared import INT8, NAMED, PEFT_POLICY, QLORA
from cases.space.case import Case, case

PADDED = "Padded rows"
MASKED = "Prompts that are not learned"
SCALED = "Scaled rotary positions"
PACKED = "Packed documents"
LONG = "Long rows"

BF16 = {"torch_dtype": "bf16"}
# What the loss of a step is divided by shows only if its parts have different numbers of tokens.
UNEVEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("one batch", {}),
    ("uneven micro-batches (transformers before 4.46 averages their means)", {"gradient_accumulation_steps": 2}),
    ("uneven ranks (transformers before 4.47 averages their means)", {"strategy": "ddp"}),
    ("uneven ranks and micro-batches", {"strategy": "ddp", "gradient_accumulation_steps": 2}),
)

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
        for kind in ("linear", "dynamic", "llama3", "yarn")
        for row in (
            case(SCALED, "loading a model", flow="load", method="full", rope_scaling=kind),
            case(SCALED, "full fine-tuning", method="full", rope_scaling=kind),
            case(SCALED, "generation from a cache", flow="generate", rope_scaling=kind),
        )
    ),
    case(SCALED, "loading a model", flow="load", method="full", rope_scaling="longrope"),
    case(SCALED, "full fine-tuning", method="full", rope_scaling="longrope"),
    *(
        case(PADDED, f"{name} through {trainer}", data=data, method="full", front_end=front_end, **chosen)
        for front_end, trainer, kinds in (
            ("trainer", "the Trainer's collator", ("padded_right", "padded_left", "prompt_masked")),
            ("sft", "TRL's collator", ("padded_right", "prompt_masked")),
        )
        for data in kinds
        for name, chosen in UNEVEN
    ),
    case(PADDED, "LoRA through the Trainer's collator", data="padded_right", front_end="trainer"),
    case(PADDED, "LoRA through TRL's collator", data="padded_right", front_end="sft", gradient_accumulation_steps=2),
    case(PACKED, "full fine-tuning", method="full", data="packed"),
    case(PACKED, "LoRA in bfloat16", data="packed", torch_dtype="bf16"),
    case(PACKED, "eager attention", data="packed", attn_implementation="eager"),
    case(PACKED, "torch's scaled_dot_product_attention", data="packed", attn_implementation="sdpa"),
    case(PACKED, "FlashAttention, the documented way", data="packed", attn_implementation="flash_attention_2", **BF16),
    case(PACKED, "ranks and micro-batches", data="packed", strategy="ddp", gradient_accumulation_steps=2),
    case(PACKED, "checkpointing", data="packed", gradient_checkpointing="non_reentrant"),
    case(PACKED, "reentrant checkpointing", data="packed", gradient_checkpointing="reentrant"),
    case(PACKED, "accelerate", data="packed", front_end="accelerate", strategy="ddp"),
    case(PACKED, "the Trainer", data="packed", front_end="trainer", method="full"),
    case(PACKED, "the Trainer with accumulation", data="packed", front_end="trainer", gradient_accumulation_steps=2),
    *(
        case(PACKED, name, model=model, method="full", data="packed")
        for model, name in (
            ("qwen", "Qwen 2"),
            ("qwen3", "Qwen 3"),
            ("mistral", "Mistral's sliding window"),
            ("gpt2", "GPT-2's learned positions"),
            ("mixtral", "Mixtral"),
        )
    ),
    case(
        PACKED,
        "Gemma 2 with use_cache=True, as it is published: a cache while training",
        model="gemma",
        method="full",
        attn_implementation="eager",
        data="packed",
    ),
    *(
        case(LONG, f"{kind} scaling", method="full", data="long", rope_scaling=kind)
        for kind in ("linear", "dynamic", "llama3", "yarn", "longrope")
    ),
    case(LONG, "Mistral's sliding window", method="full", data="long", model="mistral"),
    case(LONG, "LoRA with checkpointing", data="long", rope_scaling="yarn", gradient_checkpointing="non_reentrant"),
)
