"""Rules for the file of ``trl sft --config``: ``ModelConfig``, ``SFTConfig``, and the inherited Trainer arguments."""

# ruff: noqa: FBT003 - values of flags, in rules of a table
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.version import Version

from reports.answers.configuration.dialects import (
    NEWEST,
    TRAINER,
    AnyValue,
    AtLeast,
    Containing,
    Dialect,
    ModelName,
    Rule,
)
from reports.answers.configuration.dialects.accelerate import fsdp_rules
from reports.answers.configuration.dialects.arguments import of_transformers
from reports.answers.configuration.dialects.trainers import trl_purpose, trl_trainer
from reports.answers.configuration.dialects.unmeasured import TRL_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cases.space.options import Value

# Releases of TRL that changed a default, according to their sources.
CHECKPOINTING_BY_DEFAULT = Version("0.22")
BF16_BY_DEFAULT = Version("0.19")
FP32_BY_DEFAULT = Version("0.27")
STORAGE_FOLLOWS_LOAD = Version("0.10")
STORAGE_HAS_OWN_KEY = Version("0.26")
FSDP2_BY_DEFAULT = "5.10"  # of transformers: FSDP means FSDP2 unless the file requests version 1
# The second names are those of PEFT's example script for supervised fine-tuning.
PEFT = "use_peft|use_peft_lora"
FOUR_BIT = "load_in_4bit|use_4bit_quantization"
EIGHT_BIT = "load_in_8bit|use_8bit_quantization"
FSDP_VERSION = "fsdp_config.fsdp_version|fsdp_config.version"


def fsdp_defaults(versions: Mapping[str, Version]) -> dict[str, Value]:
    """Return the FSDP settings that the Trainer passes to accelerate if its arguments do not set them."""
    transformers = versions.get("transformers", NEWEST["transformers"])
    wrap = "transformer" if transformers >= Version(FSDP2_BY_DEFAULT) else "none"
    return {"use_orig_params": True, "sync_module_states": True, "auto_wrap_policy": wrap}


def defaults(values: Mapping[str, Value], versions: Mapping[str, Version]) -> dict[str, Value]:
    """Return the defaults of ``trl sft``, which depend on the release."""
    trl = versions.get("trl", NEWEST["trl"])
    transformers = versions.get("transformers", NEWEST["transformers"])
    single = trl >= FP32_BY_DEFAULT or transformers < Version("5")
    load = values.get("torch_dtype", "fp32" if single else "bf16")
    usual: dict[str, Value] = {
        "front_end": "sft",
        "torch_dtype": load,
        "amp": "bf16" if trl >= BF16_BY_DEFAULT else "off",
        "gradient_checkpointing": "on" if trl >= CHECKPOINTING_BY_DEFAULT else "off",
        "optim": "adamw",
        "clip_grad_norm": True,
    }
    if values.get("strategy") in ("fsdp1", "fsdp2"):
        usual |= fsdp_defaults(versions)
    if STORAGE_FOLLOWS_LOAD <= trl < STORAGE_HAS_OWN_KEY and "torch_dtype" in values:
        usual["bnb_4bit_quant_storage"] = load
    return usual


# Experts, images, other layers or the first generation: their architectures differ from the one that is measured.
OTHER_QWEN = re.compile(r"moe|-a\d+(?:\.\d+)?b\b|next|-vl|omni|audio|qwen3\.\d|qwen-\d")
OTHER_MISTRAL = re.compile(r"small-3|medium|large-3|mistral-?[34]\b|pixtral")
# Parts of names of models. Only Gemma 2 is measured; "gemma-2b" is a first Gemma.
ARCHITECTURES = (
    ("mixtral", "mixtral", None),
    ("mistral", "mistral", OTHER_MISTRAL),
    ("gemma-2-", "gemma", None),
    ("gemma2", "gemma", None),
    ("qwen", "qwen", OTHER_QWEN),
    ("gpt2", "gpt2", None),
    ("t5", "t5", None),
)


def model_rules(key: str) -> tuple[Rule, ...]:
    """Return the rules for the architecture in the name of a model."""
    return tuple(Rule("model", model, {key: ModelName(word, other)}) for word, model, other in ARCHITECTURES)


MODEL_RULES = (*model_rules("model_name_or_path"), *model_rules("base_model"))


def flag_rules(option: str, key: str) -> tuple[Rule, ...]:
    """Return the rules of a flag."""
    return Rule(option, True, {key: True}), Rule(option, False, {key: False})


def optimiser_rules(key: str) -> tuple[Rule, ...]:
    """Return the rules for the Trainer's names of optimisers."""
    return (
        Rule("optim", "adamw", {key: ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw")}),
        Rule("optim_implementation", "fused", {key: "adamw_torch_fused"}),
        Rule("optim", "sgd", {key: "sgd"}),
        Rule("optim", "adamw_8bit", {key: ("adamw_bnb_8bit", "adamw_8bit")}),
        Rule("optim", "paged_adamw_8bit", {key: "paged_adamw_8bit"}),
    )


def fsdp_version_rules(key: str, enabled: object, version: str, *, honoured_since: str = "0") -> tuple[Rule, ...]:
    """Return the rules of a key that enables FSDP, with an explicit version or the default one."""
    since_version, second = {"transformers": honoured_since}, {"transformers": FSDP2_BY_DEFAULT}
    return (
        Rule("strategy", "fsdp2", {key: enabled, version: 2}, since=since_version),
        Rule("strategy", "fsdp1", {key: enabled, version: 1}, since=since_version),
        Rule("strategy", "fsdp1", {key: enabled, version: None}, until=second),
        Rule("strategy", "fsdp2", {key: enabled, version: None}, since=second),
        Rule("strategy", "fsdp1", {key: enabled}, until=since_version),
    )


FSDP_WORD_RULES = (
    Rule("auto_wrap_policy", "transformer", {"fsdp": Containing("auto_wrap")}),
    Rule("sharding_strategy", "shard_grad_op", {"fsdp": Containing("shard_grad_op")}),
    Rule("sharding_strategy", "no_shard", {"fsdp": Containing("no_shard")}),
    Rule("device_mesh", "hsdp", {"fsdp": Containing("hybrid_shard")}),
    Rule("cpu_offload", True, {"fsdp": Containing("offload")}),
)


def trainer_rules() -> tuple[Rule, ...]:
    """Return the rules of ``TrainingArguments``."""
    use_reentrant = "gradient_checkpointing_kwargs.use_reentrant|use_reentrant"
    return (
        *fsdp_version_rules(
            "fsdp", (True, Containing("shard"), Containing("offload")), FSDP_VERSION, honoured_since="5.0"
        ),
        *fsdp_rules("fsdp_config.", short=True),
        *FSDP_WORD_RULES,
        Rule("gradient_accumulation_steps", 1, {"gradient_accumulation_steps": 1}),
        Rule("gradient_accumulation_steps", 2, {"gradient_accumulation_steps": AtLeast(2)}),
        Rule("clip_grad_norm", False, {"max_grad_norm": 0}),
        Rule("clip_grad_norm", True, {"max_grad_norm": AnyValue()}),
        Rule("find_unused_parameters", True, {"ddp_find_unused_parameters": True}),
        Rule("find_unused_parameters", False, {"ddp_find_unused_parameters": False}),
        *flag_rules("torch_compile", "torch_compile"),
        Rule("gradient_checkpointing", "off", {"gradient_checkpointing": False}),
        Rule("gradient_checkpointing", "non_reentrant", {"gradient_checkpointing": True, use_reentrant: False}),
        Rule("gradient_checkpointing", "reentrant", {"gradient_checkpointing": True, use_reentrant: True}),
        Rule("gradient_checkpointing", "non_reentrant", {use_reentrant: False, "gradient_checkpointing": True}),
        Rule("gradient_checkpointing", "on", {"gradient_checkpointing": True, use_reentrant: None}),
    )


def quantisation_rules() -> tuple[Rule, ...]:
    """Return the rules for bitsandbytes, as ``BitsAndBytesConfig`` names its arguments."""
    off = (False, None)
    four_bit = {FOUR_BIT: True, EIGHT_BIT: off}
    return (
        Rule("quant", "fp4", {**four_bit, "bnb_4bit_quant_type": "fp4"}),
        Rule("quant", "nf4", {**four_bit, "bnb_4bit_quant_type": ("nf4", None)}),
        Rule("quant", "int8", {EIGHT_BIT: True, FOUR_BIT: off}),
        Rule("quant", "none", {FOUR_BIT: off, EIGHT_BIT: off}),
        Rule("bnb_4bit_compute_dtype", "bf16", {"bnb_4bit_compute_dtype": ("bfloat16", "bf16")}),
        Rule("bnb_4bit_compute_dtype", "fp16", {"bnb_4bit_compute_dtype": ("float16", "fp16")}),
        Rule("bnb_4bit_compute_dtype", "fp32", {"bnb_4bit_compute_dtype": ("float32", "fp32")}),
    )


def storage_rules(key: str, since: Mapping[str, str] | None = None) -> tuple[Rule, ...]:
    """Return the rules for the dtype that stores 4-bit weights."""
    words = {"bf16": ("bfloat16", "bf16"), "fp16": ("float16", "fp16"), "fp32": ("float32", "fp32"), "uint8": "uint8"}
    return tuple(Rule("bnb_4bit_quant_storage", value, {key: each}, since=since or {}) for value, each in words.items())


def dtype_rules() -> tuple[Rule, ...]:
    """Return the rules for the dtype of the weights."""
    return (
        Rule("torch_dtype", "bf16", {"dtype|torch_dtype": ("bfloat16", "bf16")}),
        Rule("torch_dtype", "fp16", {"dtype|torch_dtype": ("float16", "fp16")}),
        Rule("torch_dtype", "fp32", {"dtype|torch_dtype": ("float32", "fp32")}),
    )


def amp_rules() -> tuple[Rule, ...]:
    """Return the rules for automatic mixed precision."""
    return (
        Rule("amp", "bf16", {"bf16": True}),
        Rule("amp", "fp16", {"fp16": True, "bf16": (False, None)}),
        Rule("amp", "off", {"bf16": False, "fp16": (False, None)}),
    )


def attention_rules() -> tuple[Rule, ...]:
    """Return the rules for transformers' implementations of attention."""
    names = ("eager", "sdpa", "flash_attention_2")
    return (
        *(Rule("attn_implementation", name, {"attn_implementation": name}) for name in names),
        Rule("attn_implementation", "flash_attention_2", {"use_flash_attn|use_flash_attention_2": True}),
    )


TRL = Dialect(
    name="TRL",
    role=TRAINER,
    marks=frozenset(
        {
            *(
                "use_peft",
                "use_peft_lora",
                "dataset_name",
                "torch_dtype",
                "bnb_4bit_quant_type",
                "bnb_4bit_quant_storage",
                "dtype",
            ),
            *("use_bnb_nested_quant", "dataset_text_field", "max_seq_length", "dataset_config", "lora_target_modules"),
            *("assistant_only_loss", "completion_only_loss", "dataset_train_split", "lora_task_type", "loss_type"),
            *("num_generations", "max_completion_length", "max_prompt_length", "packing_strategy", "padding_free"),
            *("precompute_ref_log_probs", "f_divergence_type", "desirable_weight", "undesirable_weight", "beta"),
            *("dataset_mixture", "dataset_mixer", "dataset_kwargs", "chat_template_path", "reward_weights"),
            *("reward_funcs", "model_init_kwargs"),
            *("dataset_test_split", "eval_packing", "reward_model_path", "reward_model_name_or_path"),
        }
    ),
    rules=(
        Rule("method", "full", {PEFT: (False, None)}),
        Rule("method", "dora", {PEFT: True, "use_dora": True}),
        Rule("method", "rslora", {PEFT: True, "use_rslora": True, "use_dora": (False, None)}),
        Rule("method", "lora", {PEFT: True, "use_dora": (False, None), "use_rslora": (False, None)}),
        *quantisation_rules(),
        *flag_rules("bnb_4bit_use_double_quant", "use_bnb_nested_quant|use_nested_quant"),
        *storage_rules("bnb_4bit_quant_storage", since={"trl": "0.26"}),
        *storage_rules("bnb_4bit_quant_storage_dtype"),
        *dtype_rules(),
        *amp_rules(),
        *attention_rules(),
        *optimiser_rules("optim"),
        Rule("modules_to_save", "lm_head", {"lora_modules_to_save": Containing("lm_head")}),
        *trainer_rules(),
        *MODEL_RULES,
    ),
    defaults=defaults,
    not_judged=TRL_ROWS,
    arguments=of_transformers,
    trainer=trl_trainer,
    purpose=trl_purpose,
    references=("deepspeed", "fsdp_config"),
)
