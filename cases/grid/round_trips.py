"""Cases of saving, resuming, merging, generating, and moving adapters between version sets."""

from __future__ import annotations

from cases.grid.shared import QLORA
from cases.space.case import Case, case

SAVING = "Saving and reloading"
RESUMING = "Stopping and resuming"
MERGING = "Merging"
GENERATING = "Generating"
PORTABILITY = "From one version set to another"

ROUND_TRIPS: tuple[Case, ...] = (
    case(SAVING, "full fine-tuning", flow="save_reload", method="full"),
    case(SAVING, "an adapter", flow="save_reload"),
    case(SAVING, "an adapter on bfloat16", flow="save_reload", torch_dtype="bf16"),
    case(SAVING, "an adapter", flow="save_reload", strategy="ddp"),
    case(SAVING, "an adapter", flow="save_reload", strategy="fsdp1"),
    case(SAVING, "an adapter", flow="save_reload", strategy="fsdp2"),
    case(SAVING, "an adapter, sharded", flow="save_reload", strategy="fsdp2", state_dict_type="sharded"),
    case(SAVING, "an adapter, sharded", flow="save_reload", strategy="fsdp1", state_dict_type="sharded"),
    case(SAVING, "full fine-tuning", flow="save_reload", method="full", strategy="fsdp2"),
    case(SAVING, "QLoRA", flow="save_reload", **QLORA),
    case(RESUMING, "LoRA with AdamW", flow="resume", optim="adamw"),
    case(RESUMING, "LoRA with AdamW", flow="resume", optim="adamw", strategy="ddp"),
    case(RESUMING, "LoRA with AdamW", flow="resume", optim="adamw", strategy="fsdp1"),
    case(RESUMING, "LoRA with AdamW", flow="resume", optim="adamw", strategy="fsdp1", state_dict_type="sharded"),
    case(RESUMING, "LoRA with AdamW", flow="resume", optim="adamw", strategy="fsdp2"),
    case(RESUMING, "LoRA with AdamW", flow="resume", optim="adamw", strategy="fsdp2", state_dict_type="sharded"),
    case(MERGING, "LoRA", flow="merge"),
    case(MERGING, "LoRA", flow="merge", torch_dtype="bf16"),
    case(MERGING, "DoRA", flow="merge", method="dora"),
    case(MERGING, "LoRA", flow="merge", strategy="ddp"),
    case(MERGING, "LoRA", flow="merge", strategy="fsdp1"),
    case(MERGING, "LoRA", flow="merge", strategy="fsdp2"),
    case(MERGING, "QLoRA", flow="merge", **QLORA),
    case(MERGING, "8-bit", flow="merge", quant="int8", torch_dtype="bf16"),
    case(MERGING, "LoRA", flow="merge_reload"),
    case(MERGING, "QLoRA", flow="merge_reload", **QLORA),
    case(GENERATING, "LoRA", flow="generate"),
    case(GENERATING, "LoRA", flow="generate", strategy="fsdp1"),
    case(GENERATING, "LoRA", flow="generate", strategy="fsdp2"),
    case(GENERATING, "LoRA", flow="generate", strategy="ddp"),
    case(PORTABILITY, "LoRA", flow="portability"),
)
