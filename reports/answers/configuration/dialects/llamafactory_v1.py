"""Rules for the file of LLaMA-Factory v1, whose settings of adapters, quantisation and sharding are mappings."""

# ruff: noqa: FBT003 - values of flags, in rules of a table
from __future__ import annotations

from typing import TYPE_CHECKING

from reports.answers.configuration.dialects import (
    TRAINER,
    AnyValue,
    Containing,
    Dialect,
    Excluding,
    Rule,
    UnmeasuredSetting,
)
from reports.answers.configuration.dialects.arguments import of_llamafactory_v1
from reports.answers.configuration.dialects.trainers import llamafactory_v1_purpose, llamafactory_v1_trainer
from reports.answers.configuration.dialects.trl import flag_rules, model_rules
from reports.answers.configuration.dialects.unmeasured import MULTIMODAL, model_rows, not_looked_at, unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from cases.space.options import Value

OFF = (False, None)
PEFT, QUANT, DIST = "peft_config", "quant_config", "dist_config"
BNB = ("bnb", "auto")
STORAGE = {"bf16": ("bfloat16", "bf16"), "fp16": ("float16", "fp16", None), "fp32": ("float32", "fp32")}
FOUR_BIT = {f"{QUANT}.name": "bnb", f"{QUANT}.quantization_bit": (4, None)}
AUTO_FOUR_BIT = {f"{QUANT}.name": "auto", f"{QUANT}.quantization_bit": 4}


def defaults(values: Mapping[str, Value], _versions: Mapping[str, Version]) -> dict[str, Value]:
    """Return the defaults of LLaMA-Factory v1, which has a training loop of its own."""
    usual: dict[str, Value] = {
        "front_end": "loop",
        "torch_dtype": "bf16",
        "gradient_checkpointing": "non_reentrant",
        "optim": "adamw",
        "clip_grad_norm": True,
        "attn_implementation": "sdpa",
        "bnb_4bit_use_double_quant": True,
    }
    if values.get("strategy") == "fsdp2":
        usual |= {"auto_wrap_policy": "transformer", "reshard_after_forward": True}
        usual["mixed_precision"] = "bf16_reduce_fp32" if values.get("torch_dtype", "bf16") == "bf16" else "off"
    return usual


def lora_keys(**more: object) -> dict[str, object]:
    usual: dict[str, object] = {f"{PEFT}.name": "lora", f"{PEFT}.use_dora": OFF, f"{PEFT}.use_rslora": OFF}
    return usual | {f"{PEFT}.{name}": value for name, value in more.items()}


def quantisation_rules() -> tuple[Rule, ...]:
    kind = f"{QUANT}.quantization_type"
    return (
        *(Rule("quant", "fp4", {**bits, kind: "fp4"}) for bits in (FOUR_BIT, AUTO_FOUR_BIT)),
        *(Rule("quant", "nf4", {**bits, kind: ("nf4", None)}) for bits in (FOUR_BIT, AUTO_FOUR_BIT)),
        Rule("quant", "int8", {f"{QUANT}.name": BNB, f"{QUANT}.quantization_bit": 8}),
        Rule("quant", "none", {f"{QUANT}.name": None}),
        Rule("quant", "none", {f"{QUANT}.name": "auto", f"{QUANT}.quantization_bit": None}),
        *flag_rules("bnb_4bit_use_double_quant", f"{QUANT}.double_quantization"),
        *(
            Rule("bnb_4bit_quant_storage", dtype, {f"{QUANT}.compute_dtype": words, f"{QUANT}.name": BNB})
            for dtype, words in STORAGE.items()
        ),
        *(
            Rule("bnb_4bit_compute_dtype", dtype, {f"{QUANT}.compute_dtype": words, f"{QUANT}.name": BNB})
            for dtype, words in STORAGE.items()
        ),
    )


LLAMAFACTORY_V1 = Dialect(
    name="LLaMA-Factory v1",
    role=TRAINER,
    marks=frozenset(
        {
            *(PEFT, QUANT, DIST, "kernel_config", "init_config", "optim_config", "lr_scheduler_config", "model_class"),
            *("train_dataset", "batching_strategy", "sample_backend", "enable_activation_checkpointing", "cp_size"),
            *("cp_mode", "global_batch_size", "save_ckpt_as_hf", "batching_workers", "custom_chat_template"),
        }
    ),
    rules=(
        Rule("method", "full", {f"{PEFT}.name": None}),
        Rule("method", "dora", lora_keys(use_dora=True)),
        Rule("method", "rslora", lora_keys(use_rslora=True)),
        Rule("method", "lora", lora_keys()),
        *quantisation_rules(),
        Rule("strategy", "fsdp2", {f"{DIST}.name": "fsdp2"}),
        Rule("reshard_after_forward", False, {f"{DIST}.reshard_after_forward": False}),
        Rule("cpu_offload", True, {f"{DIST}.offload_params": True}),
        Rule("cpu_ram_efficient_loading", True, {"init_config.name": ("init_on_rank0", "init_on_meta")}),
        Rule("torch_dtype", "fp32", {"bf16": False}),
        Rule("torch_dtype", "bf16", {"bf16": (True, None)}),
        Rule("attn_implementation", "flash_attention_2", {"flash_attn": "flash_attention_2"}),
        Rule("attn_implementation", "sdpa", {"flash_attn": "sdpa"}),
        Rule("attn_implementation", "eager", {"flash_attn": "eager"}),
        Rule("gradient_checkpointing", "off", {"enable_activation_checkpointing": False}),
        Rule("clip_grad_norm", False, {"max_grad_norm": 0}),
        Rule("clip_grad_norm", True, {"max_grad_norm": AnyValue()}),
        Rule("modules_to_save", "lm_head", {f"{PEFT}.modules_to_save": Containing("lm_head")}),
        *model_rules("model"),
    ),
    defaults=defaults,
    not_judged=(
        UnmeasuredSetting(f"{DIST}.name", "DeepSpeed", "deepspeed"),
        UnmeasuredSetting(f"{DIST}.name", "the strategy {value}", Excluding(("fsdp2", "deepspeed"))),
        UnmeasuredSetting("kernel_config.name", "kernels: {value}", AnyValue()),
        UnmeasuredSetting("optim_config.name", "the optimiser {value}", Excluding(("adamw", "adamw_torch"))),
        UnmeasuredSetting("batching_strategy", "batches by {value}", Excluding(("normal",))),
        UnmeasuredSetting("model_class", MULTIMODAL, ("other",)),
        UnmeasuredSetting("train_dataset", MULTIMODAL, Containing("multimodal")),
        *unmeasured(("cp_size", "context parallelism"), (f"{DIST}.ep_size", "expert parallelism")),
        *not_looked_at(
            ("train_dataset", "the training loop of LLaMA-Factory v1"),
            ("mp_replicate_size", "hybrid sharding"),
            ("save_ckpt_as_hf", "checkpoints in two formats"),
        ),
        *model_rows("model"),
    ),
    arguments=of_llamafactory_v1,
    trainer=llamafactory_v1_trainer,
    purpose=llamafactory_v1_purpose,
    references=(f"{DIST}.config_file",),
)
