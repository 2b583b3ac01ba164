"""The default cases: loading and training with every strategy, quantised or not."""

from __future__ import annotations

from cases.grid.shared import FLAT, NAMED, QLORA
from cases.space.case import Case, case

LOADING = "Loading a model"
ONE_PROCESS = "Training in one process"
DDP = "DDP"
FSDP1 = "FSDP1"
FSDP1_QUANTISED = "FSDP1 with a quantised base"
FSDP2 = "FSDP2"
FSDP2_QUANTISED = "FSDP2 with a quantised base"

DEFAULT: tuple[Case, ...] = (
    case(LOADING, "the baseline for all other cases", flow="load", method="full"),
    case(LOADING, "half precision as most models are published", flow="load", method="full", torch_dtype="bf16"),
    case(LOADING, "half precision as older models were published", flow="load", method="full", torch_dtype="fp16"),
    case(LOADING, "4-bit weights in bytes, the default bnb_4bit_quant_storage", flow="load", method="full", **QLORA),
    case(
        LOADING,
        "4-bit weights in bfloat16 storage, which FSDP can shard",
        flow="load",
        method="full",
        bnb_4bit_quant_storage="bf16",
        **QLORA,
    ),
    case(
        LOADING, "4-bit weights in float16 storage", flow="load", method="full", bnb_4bit_quant_storage="fp16", **QLORA
    ),
    case(
        LOADING, "4-bit weights in float32 storage", flow="load", method="full", bnb_4bit_quant_storage="fp32", **QLORA
    ),
    case(LOADING, "LLM.int8 weights", flow="load", method="full", quant="int8", torch_dtype="bf16"),
    case(ONE_PROCESS, "full fine-tuning, the baseline", method="full"),
    case(ONE_PROCESS, "every weight in bfloat16", method="full", torch_dtype="bf16"),
    case(ONE_PROCESS, "mixed precision by autocast", method="full", autocast="bf16"),
    case(ONE_PROCESS, "mixed precision by autocast to float16", method="full", autocast="fp16"),
    case(ONE_PROCESS, "LoRA, the baseline", method="lora"),
    case(ONE_PROCESS, "LoRA on a bfloat16 base, adapters in float32", method="lora", torch_dtype="bf16"),
    case(ONE_PROCESS, "LoRA on a float16 base", method="lora", torch_dtype="fp16"),
    case(
        ONE_PROCESS,
        "adapters in the dtype of the base",
        method="lora",
        torch_dtype="bf16",
        autocast_adapter_dtype=False,
    ),
    case(ONE_PROCESS, "LoRA with AdamW, the usual optimiser", method="lora", torch_dtype="bf16", optim="adamw"),
    case(ONE_PROCESS, "AdamW in float32, the most precise comparison", optim="adamw"),
    case(ONE_PROCESS, "DoRA", method="dora", torch_dtype="bf16"),
    case(ONE_PROCESS, "QLoRA on one device, the most common job", **QLORA),
    case(ONE_PROCESS, "QLoRA with checkpointing, as recommended", gradient_checkpointing="non_reentrant", **QLORA),
    case(ONE_PROCESS, "QDoRA", method="dora", **QLORA),
    case(ONE_PROCESS, "LoRA on an 8-bit base", quant="int8", torch_dtype="bf16"),
    case(ONE_PROCESS, "DoRA on an 8-bit base", method="dora", quant="int8", torch_dtype="bf16"),
    case(DDP, "full fine-tuning", method="full", strategy="ddp"),
    case(DDP, "LoRA", strategy="ddp", torch_dtype="bf16"),
    case(DDP, "LoRA with AdamW", strategy="ddp", torch_dtype="bf16", optim="adamw"),
    case(DDP, "AdamW in float32", strategy="ddp", optim="adamw"),
    case(DDP, "DoRA", method="dora", strategy="ddp", torch_dtype="bf16"),
    case(DDP, "QLoRA", strategy="ddp", **QLORA),
    case(DDP, "LoRA on an 8-bit base", strategy="ddp", quant="int8", torch_dtype="bf16"),
    case(DDP, "reentrant checkpointing, which DDP often rejects", strategy="ddp", gradient_checkpointing="reentrant"),
    case(
        DDP,
        "non-reentrant checkpointing, the recommended setting",
        strategy="ddp",
        gradient_checkpointing="non_reentrant",
    ),
    case(DDP, "an evaluation between the steps", strategy="ddp", torch_dtype="bf16", loop="eval"),
    case(FSDP1, "full fine-tuning", method="full", **NAMED),
    case(FSDP1, "full fine-tuning with AdamW", method="full", optim="adamw", **NAMED),
    case(FSDP1, "full fine-tuning, rank 0 broadcasts its weights", method="full", sync_module_states=True, **NAMED),
    case(FSDP1, "LoRA in float32, decoder layers wrapped", **NAMED),
    case(FSDP1, "LoRA on bfloat16: float32 adapters and the base in one unit", torch_dtype="bf16", **NAMED),
    case(FSDP1, "adapters in the dtype of the base", torch_dtype="bf16", autocast_adapter_dtype=False, **NAMED),
    case(FSDP1, "the whole model in one unit", torch_dtype="bf16", auto_wrap_policy="none", **NAMED),
    case(FSDP1, "frozen and trainable weights in one flat parameter", **FLAT),
    case(FSDP1, "flat parameters, the whole model in one unit", auto_wrap_policy="none", **FLAT),
    case(
        FSDP1,
        "PEFT's wrap policy: a separate unit for each adapter",
        torch_dtype="bf16",
        auto_wrap_policy="peft",
        **FLAT,
    ),
    case(FSDP1, "PEFT's wrap policy, use_orig_params=True", torch_dtype="bf16", auto_wrap_policy="peft", **NAMED),
    case(
        FSDP1, "DoRA, decoder layers wrapped", method="dora", torch_dtype="bf16", autocast_adapter_dtype=False, **NAMED
    ),
    case(FSDP1, "DoRA, PEFT's wrap policy", method="dora", torch_dtype="bf16", auto_wrap_policy="peft", **FLAT),
    case(
        FSDP1,
        "DoRA, PEFT's wrap policy, use_orig_params=True",
        method="dora",
        torch_dtype="bf16",
        auto_wrap_policy="peft",
        **NAMED,
    ),
    case(FSDP1, "reentrant checkpointing", gradient_checkpointing="reentrant", **NAMED),
    case(FSDP1, "non-reentrant checkpointing", gradient_checkpointing="non_reentrant", **NAMED),
    case(FSDP1, "an evaluation between the steps", loop="eval", torch_dtype="bf16", auto_wrap_policy="peft", **FLAT),
    case(FSDP1_QUANTISED, "QLoRA with the default byte storage", auto_wrap_policy="peft", **QLORA, **FLAT),
    case(
        FSDP1_QUANTISED,
        "QLoRA as documented: bfloat16 storage",
        bnb_4bit_quant_storage="bf16",
        auto_wrap_policy="peft",
        **QLORA,
        **FLAT,
    ),
    case(
        FSDP1_QUANTISED,
        "float16 storage under bfloat16",
        bnb_4bit_quant_storage="fp16",
        auto_wrap_policy="peft",
        **QLORA,
        **FLAT,
    ),
    case(
        FSDP1_QUANTISED,
        "float32 storage under bfloat16",
        bnb_4bit_quant_storage="fp32",
        auto_wrap_policy="peft",
        **QLORA,
        **FLAT,
    ),
    case(FSDP1_QUANTISED, "bfloat16 storage, decoder layers wrapped", bnb_4bit_quant_storage="bf16", **QLORA, **NAMED),
    case(
        FSDP1_QUANTISED,
        "adapters in the dtype of the base",
        bnb_4bit_quant_storage="bf16",
        autocast_adapter_dtype=False,
        **QLORA,
        **NAMED,
    ),
    case(
        FSDP1_QUANTISED, "QDoRA", method="dora", bnb_4bit_quant_storage="bf16", auto_wrap_policy="peft", **QLORA, **FLAT
    ),
    case(FSDP1_QUANTISED, "LoRA on an 8-bit base", quant="int8", torch_dtype="bf16", auto_wrap_policy="peft", **FLAT),
    case(FSDP2, "full fine-tuning", method="full", strategy="fsdp2"),
    case(FSDP2, "full fine-tuning in bfloat16", method="full", strategy="fsdp2", torch_dtype="bf16"),
    case(FSDP2, "LoRA", strategy="fsdp2"),
    case(FSDP2, "LoRA on a bfloat16 base", strategy="fsdp2", torch_dtype="bf16"),
    case(FSDP2, "LoRA with AdamW", strategy="fsdp2", torch_dtype="bf16", optim="adamw"),
    case(FSDP2, "layers stay unsharded between forward and backward", strategy="fsdp2", reshard_after_forward=False),
    case(FSDP2, "the whole model in one unit", strategy="fsdp2", auto_wrap_policy="none"),
    case(FSDP2, "mixed precision by autocast", strategy="fsdp2", method="full", autocast="bf16"),
    case(FSDP2, "DoRA", method="dora", strategy="fsdp2", torch_dtype="bf16"),
    case(FSDP2, "reentrant checkpointing", strategy="fsdp2", gradient_checkpointing="reentrant"),
    case(FSDP2, "non-reentrant checkpointing", strategy="fsdp2", gradient_checkpointing="non_reentrant"),
    case(FSDP2, "an evaluation between the steps", strategy="fsdp2", torch_dtype="bf16", loop="eval"),
    case(FSDP2_QUANTISED, "QLoRA with the default byte storage", strategy="fsdp2", **QLORA),
    case(FSDP2_QUANTISED, "QLoRA with bfloat16 storage", strategy="fsdp2", bnb_4bit_quant_storage="bf16", **QLORA),
    case(FSDP2_QUANTISED, "QLoRA with float32 storage", strategy="fsdp2", bnb_4bit_quant_storage="fp32", **QLORA),
    case(FSDP2_QUANTISED, "QDoRA", method="dora", strategy="fsdp2", bnb_4bit_quant_storage="bf16", **QLORA),
    case(FSDP2_QUANTISED, "LoRA on an 8-bit base", strategy="fsdp2", quant="int8", torch_dtype="bf16"),
)

# Settings that upstream threads recommend for known failures, or warn against.
ADVISED: tuple[Case, ...] = (
    case(FSDP1, "DoRA, float32 adapters and the base in one unit", method="dora", torch_dtype="bf16", **NAMED),
    case(
        FSDP1,
        "LoRA on bfloat16 with checkpointing, recommended instead of an 8-bit base",
        torch_dtype="bf16",
        auto_wrap_policy="peft",
        gradient_checkpointing="non_reentrant",
        **FLAT,
    ),
    case(
        FSDP1_QUANTISED,
        "float16 throughout: weights, storage and arithmetic",
        quant="nf4",
        torch_dtype="fp16",
        bnb_4bit_quant_storage="fp16",
        auto_wrap_policy="peft",
        **FLAT,
    ),
    case(FSDP1_QUANTISED, "8-bit weights and adapters in one unit", quant="int8", torch_dtype="bf16", **NAMED),
)
