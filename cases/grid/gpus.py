"""Cases that need GPUs: attention kernels by dtype, paged optimisers, and FSDP through front ends."""

from __future__ import annotations

from typing import Any

from cases.grid.shared import AS_DOCUMENTED, FLAT, NAMED, QLORA, SHARDABLE
from cases.space.case import Case, case

ATTENTION = "Attention back ends by dtype"
STATE_IN_8_BITS = "Optimisers with 8-bit state"
COMPILING = "torch.compile"
ACCELERATE = "accelerate"
TRAINER = "transformers Trainer"
SFT = "trl SFTTrainer"
ONE_DTYPE = "QLoRA under FSDP2, bfloat16 throughout"

PAGED: dict[str, Any] = {"optim": "paged_adamw_8bit"}
FSDP1_QLORA: dict[str, Any] = {**QLORA, **SHARDABLE, **FLAT}
FSDP2_QLORA: dict[str, Any] = {**QLORA, **SHARDABLE, "strategy": "fsdp2"}

GPUS: tuple[Case, ...] = (
    case(ATTENTION, "flash in float32, which its kernels do not support", attn_implementation="flash"),
    case(ATTENTION, "flash in float16", attn_implementation="flash", torch_dtype="fp16"),
    case(ATTENTION, "flash in float32, cast to bfloat16 by autocast", attn_implementation="flash", autocast="bf16"),
    case(ATTENTION, "flash, queries of a 4-bit base", attn_implementation="flash", **QLORA),
    case(ATTENTION, "memory-efficient in bfloat16", attn_implementation="efficient", torch_dtype="bf16"),
    case(ATTENTION, "memory-efficient in float16", attn_implementation="efficient", torch_dtype="fp16"),
    case(ATTENTION, "cuDNN in float32, which its kernels do not support", attn_implementation="cudnn"),
    case(ATTENTION, "cuDNN in float16", attn_implementation="cudnn", torch_dtype="fp16"),
    case(ATTENTION, "the math back end in bfloat16", attn_implementation="math", torch_dtype="bf16"),
    case(ATTENTION, "the math back end in float16", attn_implementation="math", torch_dtype="fp16"),
    case(ATTENTION, "the flash-attn package in float16", attn_implementation="flash_attention_2", torch_dtype="fp16"),
    case(
        ATTENTION,
        "the flash-attn package in float32, which it does not support",
        attn_implementation="flash_attention_2",
    ),
    case(STATE_IN_8_BITS, "LoRA, paged", torch_dtype="bf16", **PAGED),
    case(STATE_IN_8_BITS, "full fine-tuning, paged", method="full", **PAGED),
    case(STATE_IN_8_BITS, "QLoRA, paged", strategy="ddp", **QLORA, **PAGED),
    case(STATE_IN_8_BITS, "QLoRA, paged", **QLORA, **AS_DOCUMENTED, **PAGED),
    case(STATE_IN_8_BITS, "interrupted and resumed, paged", flow="resume", **PAGED),
    case(COMPILING, "LoRA on bfloat16", torch_compile=True, torch_dtype="bf16"),
    case(COMPILING, "QLoRA", torch_compile=True, **QLORA),
    case(COMPILING, "LoRA", torch_compile=True, **NAMED),
    case(COMPILING, "LoRA", torch_compile=True, strategy="fsdp2"),
    case(ACCELERATE, "FSDP1, full fine-tuning", front_end="accelerate", method="full", optim="adamw", **NAMED),
    case(ACCELERATE, "FSDP2, full fine-tuning", front_end="accelerate", method="full", strategy="fsdp2"),
    case(ACCELERATE, "FSDP2 with QLoRA", front_end="accelerate", **FSDP2_QLORA),
    case(ACCELERATE, "an adapter gathered by FSDP1", front_end="accelerate", flow="save_reload", **NAMED),
    case(ACCELERATE, "an adapter gathered by FSDP2", front_end="accelerate", flow="save_reload", strategy="fsdp2"),
    case(TRAINER, "FSDP1 with QLoRA, as PEFT documents it", front_end="trainer", **FSDP1_QLORA),
    case(TRAINER, "FSDP1 with QLoRA, bf16=True", front_end="trainer", autocast="bf16", **FSDP1_QLORA),
    case(TRAINER, "FSDP2 with QLoRA", front_end="trainer", **FSDP2_QLORA),
    case(TRAINER, "FSDP1, full fine-tuning", front_end="trainer", method="full", optim="adamw", **NAMED),
    case(TRAINER, "FSDP2, full fine-tuning", front_end="trainer", method="full", strategy="fsdp2"),
    case(TRAINER, "paged optimiser state, as in QLoRA's scripts", front_end="trainer", **QLORA, **PAGED),
    case(TRAINER, "save_model under FSDP1", front_end="trainer", flow="save_reload", **NAMED),
    case(TRAINER, "save_model under FSDP2", front_end="trainer", flow="save_reload", strategy="fsdp2"),
    case(SFT, "FSDP1 as the launcher configures it", front_end="sft", **NAMED),
    case(SFT, "FSDP1 with QLoRA, as PEFT documents it", front_end="sft", autocast_adapter_dtype=False, **FSDP1_QLORA),
    case(SFT, "FSDP2 with QLoRA", front_end="sft", autocast_adapter_dtype=False, **FSDP2_QLORA),
    case(ONE_DTYPE, "QLoRA, adapters in the dtype of the base", autocast_adapter_dtype=False, **FSDP2_QLORA),
    case(
        ONE_DTYPE,
        "QLoRA, layers not gathered again for the backward pass",
        autocast_adapter_dtype=False,
        reshard_after_forward=False,
        **FSDP2_QLORA,
    ),
)
