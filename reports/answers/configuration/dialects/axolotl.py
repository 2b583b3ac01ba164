"""Rules for Axolotl's single file: model, adapter, quantisation, launcher and trainer settings."""

# ruff: noqa: FBT003 - values of flags, in rules of a table
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.answers.configuration.dialects import (
    TRAINER,
    AnyValue,
    AtLeast,
    Containing,
    Dialect,
    MoreThan,
    Rule,
    is_enabled,
    normalise,
)
from reports.answers.configuration.dialects.accelerate import fsdp_rules
from reports.answers.configuration.dialects.arguments import of_axolotl
from reports.answers.configuration.dialects.trainers import axolotl_purpose, axolotl_trainer
from reports.answers.configuration.dialects.trl import (
    FSDP_WORD_RULES,
    MODEL_RULES,
    flag_rules,
    fsdp_defaults,
    fsdp_version_rules,
    optimiser_rules,
)
from reports.answers.configuration.dialects.unmeasured import AXOLOTL_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from cases.space.options import Value

BNB = "bnb_config_kwargs.bnb_4bit_"
VERSION = "fsdp_version|fsdp_config.fsdp_version|fsdp_config.version"
USE_REENTRANT = "gradient_checkpointing_kwargs.use_reentrant"
OFF = (False, None)
FOUR_BIT = {"adapter": "qlora", "load_in_4bit": True, "load_in_8bit": OFF}


def defaults(values: Mapping[str, Value], versions: Mapping[str, Version]) -> dict[str, Value]:
    """Return the defaults of Axolotl. It stores 4-bit weights in bfloat16 whatever the other settings."""
    return {
        "front_end": "trainer",
        "bnb_4bit_quant_storage": "bf16",
        "bnb_4bit_use_double_quant": True,
        "torch_dtype": "fp16" if values.get("quant") == "int8" else "fp32",
        "amp": "off",
        "gradient_checkpointing": "off",
        "optim": "adamw",
        "clip_grad_norm": True,
        **fsdp_defaults(versions),
    }


def lora_keys(**more: object) -> dict[str, object]:
    """Return the keys of a LoRA variant, quantised or not."""
    usual: dict[str, object] = {
        "adapter": ("lora", "qlora"),
        "peft_use_dora": OFF,
        "peft_use_rslora": OFF,
        "peft_init_lora_weights": (None, True, "gaussian"),
    }
    return usual | more


def patches(values: Mapping[str, Any], options: Mapping[str, Value]) -> tuple[str, ...]:
    """Return what Axolotl replaces in the measured libraries, according to its ``PatchManager``."""
    second = any(normalise(values.get(key)) == 2 for key in VERSION.split("|"))  # noqa: PLR2004 - FSDP2
    quantised = is_enabled(values.get("load_in_8bit")) or is_enabled(values.get("load_in_4bit"))
    flash = options.get("attn_implementation") == "flash_attention_2"
    parts = (
        (second and bool(values.get("fsdp_config")), "accelerate's preparation of models for FSDP2"),
        (second and quantised, "FSDP2's sharding of quantised weights"),
        (is_enabled(values.get("sample_packing")), "attention, for packed sequences"),
        (flash and is_enabled(values.get("adapter")), "transformers' casts for flash-attention with adapters"),
    )
    return tuple(f"Axolotl patches {part}" for applies, part in parts if applies)


def corrects(_values: Mapping[str, Any], _options: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the findings that Axolotl corrects: ``monkeypatch/trainer_grad_accum.py`` of December 2024."""
    return ("trainer-accumulation-doubles",)


STRATEGIES = (
    *fsdp_version_rules("fsdp_config", AnyValue(), VERSION),
    *fsdp_version_rules("fsdp", Containing("shard"), VERSION),
)

AXOLOTL = Dialect(
    name="Axolotl",
    role=TRAINER,
    marks=frozenset(
        {
            *("base_model", "adapter", "micro_batch_size", "sequence_len", "val_set_size", "num_epochs", "datasets"),
            *("lora_target_linear", "sample_packing", "peft_use_dora", "dataset_prepared_path", "bnb_config_kwargs"),
            *("evals_per_epoch", "saves_per_epoch", "train_on_inputs", "flash_attention"),
        }
    ),
    rules=(
        Rule("method", "dora", lora_keys(peft_use_dora=True)),
        Rule("method", "rslora", lora_keys(peft_use_rslora=True)),
        Rule("method", "pissa", lora_keys(peft_init_lora_weights="pissa")),
        Rule("method", "olora", lora_keys(peft_init_lora_weights="olora")),
        Rule("method", "loftq", lora_keys(peft_init_lora_weights="loftq")),
        Rule("method", "lora", lora_keys()),
        Rule("method", "full", {"adapter": None}),
        Rule("quant", "fp4", {**FOUR_BIT, f"{BNB}quant_type": "fp4"}),
        Rule("quant", "nf4", {**FOUR_BIT, f"{BNB}quant_type": ("nf4", None)}),
        Rule("quant", "int8", {"adapter": "lora", "load_in_8bit": True, "load_in_4bit": OFF}),
        Rule("quant", "none", {"load_in_4bit": OFF, "load_in_8bit": OFF, "adapter": ("lora", None)}),
        *flag_rules("bnb_4bit_use_double_quant", f"{BNB}use_double_quant"),
        Rule("bnb_4bit_quant_storage", "bf16", {f"{BNB}bnb_4bit_quant_storage": ("bfloat16", "bf16")}),
        Rule("bnb_4bit_quant_storage", "fp16", {f"{BNB}bnb_4bit_quant_storage": ("float16", "fp16")}),
        Rule("bnb_4bit_quant_storage", "fp32", {f"{BNB}bnb_4bit_quant_storage": ("float32", "fp32")}),
        Rule("bnb_4bit_quant_storage", "uint8", {f"{BNB}bnb_4bit_quant_storage": "uint8"}),
        Rule("torch_dtype", "bf16", {"bf16": (True, "auto", "full")}),
        Rule("torch_dtype", "bf16", {"bfloat16": True}),
        Rule("torch_dtype", "fp16", {"fp16": True, "bf16": OFF}),
        Rule("torch_dtype", "fp16", {"float16": True, "bf16": OFF}),
        Rule("torch_dtype", "fp32", {"bf16": False, "fp16": OFF, "bfloat16": OFF, "float16": OFF}),
        Rule("amp", "off", {"bf16": "full"}),
        Rule("amp", "bf16", {"bf16": (True, "auto")}),
        Rule("amp", "fp16", {"fp16": True, "bf16": OFF}),
        Rule("amp", "off", {"bf16": False, "fp16": OFF}),
        *flag_rules("autocast_adapter_dtype", "peft_autocast_adapter_dtype"),
        *STRATEGIES,
        *fsdp_rules("fsdp_config.", short=True),
        *FSDP_WORD_RULES,
        Rule("attn_implementation", "flash_attention_2", {"flash_attention": True}),
        Rule("attn_implementation", "sdpa", {"sdp_attention": True}),
        Rule("attn_implementation", "eager", {"eager_attention": True}),
        Rule("attn_implementation", "flash_attention_2", {"attn_implementation": "flash_attention_2"}),
        Rule("attn_implementation", "sdpa", {"attn_implementation": "sdpa"}),
        Rule("attn_implementation", "eager", {"attn_implementation": "eager"}),
        *optimiser_rules("optimizer"),
        Rule("modules_to_save", "lm_head", {"lora_modules_to_save": Containing("lm_head")}),
        Rule("gradient_accumulation_steps", 1, {"gradient_accumulation_steps": 1}),
        Rule("gradient_accumulation_steps", 2, {"gradient_accumulation_steps": AtLeast(2)}),
        # Without a number of steps, Axolotl divides the batch of an update by that of a step.
        Rule(
            "gradient_accumulation_steps",
            2,
            {"gradient_accumulation_steps": None, "batch_size": MoreThan("micro_batch_size")},
        ),
        Rule("clip_grad_norm", False, {"max_grad_norm": 0}),
        Rule("clip_grad_norm", True, {"max_grad_norm": AnyValue()}),
        *flag_rules("find_unused_parameters", "ddp_find_unused_parameters"),
        *flag_rules("torch_compile", "torch_compile"),
        Rule("gradient_checkpointing", "off", {"gradient_checkpointing": False}),
        Rule("gradient_checkpointing", "non_reentrant", {"gradient_checkpointing": True, USE_REENTRANT: False}),
        Rule("gradient_checkpointing", "reentrant", {"gradient_checkpointing": True, USE_REENTRANT: (True, None)}),
        *MODEL_RULES,
    ),
    defaults=defaults,
    not_judged=AXOLOTL_ROWS,
    patches=patches,
    corrects=corrects,
    own_trainer=True,
    arguments=of_axolotl,
    trainer=axolotl_trainer,
    purpose=axolotl_purpose,
    references=("deepspeed",),
)
