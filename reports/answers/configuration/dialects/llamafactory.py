"""Rules for the file of ``llamafactory-cli train``: its own arguments and those of the Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.answers.configuration.dialects import TRAINER, Containing, Dialect, Rule
from reports.answers.configuration.dialects.arguments import of_llamafactory
from reports.answers.configuration.dialects.trainers import llamafactory_purpose, llamafactory_trainer
from reports.answers.configuration.dialects.trl import (
    MODEL_RULES,
    flag_rules,
    fsdp_defaults,
    optimiser_rules,
    trainer_rules,
)
from reports.answers.configuration.dialects.unmeasured import LLAMAFACTORY_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from cases.space.options import Value

OFF = (False, None)
BNB = ("bnb", "bitsandbytes", None)


def defaults(values: Mapping[str, Value], versions: Mapping[str, Version]) -> dict[str, Value]:
    """Return the defaults of LLaMA-Factory: it loads, computes and stores in the precision of training.

    Full training with mixed precision casts the weights to float32, unless they are sharded.
    """
    amp = values.get("amp", "off")
    half = "fp32" if amp == "off" else amp
    in_full = values.get("method") == "full" and values.get("strategy") not in ("fsdp1", "fsdp2")
    return {
        "front_end": "trainer",
        "torch_dtype": "fp32" if in_full else half,
        "bnb_4bit_quant_storage": values.get("torch_dtype", half),
        "bnb_4bit_use_double_quant": True,
        "amp": "off",
        "gradient_checkpointing": "non_reentrant" if values.get("strategy") == "fsdp2" else "reentrant",
        "optim": "adamw",
        "clip_grad_norm": True,
        **fsdp_defaults(versions),
    }


def lora_keys(**more: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "finetuning_type": ("lora", None),
        "use_dora": OFF,
        "use_rslora": OFF,
        "pissa_init": OFF,
    }
    return usual | more


def corrects(_values: Mapping[str, Any], options: Mapping[str, Value]) -> tuple[str, ...]:
    """Return the findings that LLaMA-Factory corrects.

    Its trainer divides the loss of models that do not accept the number of tokens, as those with an adapter
    (huggingface/transformers#35438).
    """
    return () if options.get("method") == "full" else ("trainer-accumulation-doubles",)


LLAMAFACTORY = Dialect(
    name="LLaMA-Factory",
    role=TRAINER,
    marks=frozenset(
        {
            *("finetuning_type", "stage", "cutoff_len", "template", "quantization_bit", "lora_target", "lora_rank"),
            *("double_quantization", "pure_bf16", "flash_attn", "dataset_dir", "plot_loss", "overwrite_cache"),
            *("infer_backend", "adapter_name_or_path", "export_dir", "export_size", "export_device", "use_kt"),
            *("tokenized_path", "enable_thinking", "use_unsloth", "pissa_init", "pref_loss", "mix_strategy"),
        }
    ),
    rules=(
        Rule("method", "full", {"finetuning_type": "full"}),
        Rule("method", "dora", lora_keys(use_dora=True)),
        Rule("method", "rslora", lora_keys(use_rslora=True)),
        Rule("method", "pissa", lora_keys(pissa_init=True)),
        Rule("method", "lora", lora_keys()),
        Rule("quant", "fp4", {"quantization_bit": 4, "quantization_type": "fp4", "quantization_method": BNB}),
        Rule("quant", "nf4", {"quantization_bit": 4, "quantization_type": ("nf4", None), "quantization_method": BNB}),
        Rule("quant", "int8", {"quantization_bit": 8, "quantization_method": BNB}),
        Rule("quant", "none", {"quantization_bit": None}),
        *flag_rules("bnb_4bit_use_double_quant", "double_quantization"),
        Rule("torch_dtype", "bf16", {"pure_bf16": True}),
        Rule("amp", "off", {"pure_bf16": True}),
        Rule("amp", "bf16", {"bf16": True, "pure_bf16": OFF}),
        Rule("amp", "fp16", {"fp16": True, "bf16": OFF, "pure_bf16": OFF}),
        Rule("amp", "off", {"bf16": False, "fp16": OFF, "pure_bf16": OFF}),
        Rule("attn_implementation", "flash_attention_2", {"flash_attn": "fa2"}),
        Rule("attn_implementation", "sdpa", {"flash_attn": "sdpa"}),
        Rule("attn_implementation", "eager", {"flash_attn": "disabled"}),
        *optimiser_rules("optim"),
        Rule("modules_to_save", "lm_head", {"additional_target": Containing("lm_head")}),
        Rule("gradient_checkpointing", "off", {"disable_gradient_checkpointing": True}),
        Rule(
            "gradient_checkpointing",
            "non_reentrant",
            {"use_reentrant_gc": False, "disable_gradient_checkpointing": OFF},
        ),
        Rule("gradient_checkpointing", "reentrant", {"use_reentrant_gc": True, "disable_gradient_checkpointing": OFF}),
        *(rule for rule in trainer_rules() if rule.option != "gradient_checkpointing"),
        *MODEL_RULES,
    ),
    defaults=defaults,
    not_judged=LLAMAFACTORY_ROWS,
    corrects=corrects,
    own_trainer=True,
    arguments=of_llamafactory,
    trainer=llamafactory_trainer,
    purpose=llamafactory_purpose,
    references=("deepspeed", "fsdp_config"),
)
