"""Rules for ``TrainingArguments`` of transformers in a file, such as the arguments of its example scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.answers.configuration.dialects import TRAINER, Dialect
from reports.answers.configuration.dialects.arguments import of_transformers
from reports.answers.configuration.dialects.trainers import transformers_purpose, trl_trainer
from reports.answers.configuration.dialects.trl import (
    MODEL_RULES,
    amp_rules,
    attention_rules,
    dtype_rules,
    flag_rules,
    fsdp_defaults,
    optimiser_rules,
    quantisation_rules,
    trainer_rules,
)
from reports.answers.configuration.dialects.unmeasured import TRANSFORMERS_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from cases.space.options import Value

ARGUMENTS = frozenset(
    {
        *("model_name_or_path", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate"),
        *("output_dir", "bf16", "fp16", "optim", "fsdp", "gradient_checkpointing", "num_train_epochs", "max_steps"),
        *("per_device_eval_batch_size", "eval_strategy", "evaluation_strategy", "save_strategy", "save_steps"),
        *("lr_scheduler_type", "warmup_ratio", "warmup_steps", "weight_decay", "logging_steps", "max_grad_norm"),
        *("load_best_model_at_end", "ddp_find_unused_parameters", "ddp_backend", "dataloader_num_workers"),
        *("resume_from_checkpoint", "report_to", "seed", "do_train", "do_eval", "do_predict", "bf16_full_eval"),
        *("label_smoothing_factor", "torch_compile", "deepspeed", "fsdp_config", "accelerator_config"),
    }
)


def defaults(values: Mapping[str, Value], versions: Mapping[str, Version]) -> dict[str, Value]:
    """Return the defaults of ``TrainingArguments``."""
    usual: dict[str, Value] = {
        "front_end": "trainer",
        "quant": "none",
        "amp": "off",
        "gradient_checkpointing": "off",
        "optim": "adamw",
        "clip_grad_norm": True,
    }
    return usual | (fsdp_defaults(versions) if values.get("strategy") in ("fsdp1", "fsdp2") else {})


TRANSFORMERS = Dialect(
    name="transformers",
    role=TRAINER,
    marks=frozenset(
        {
            *("train_file", "validation_file", "block_size", "dataset_config_name", "max_train_samples", "config_name"),
            *("max_eval_samples", "tokenizer_name", "line_by_line", "validation_split_percentage", "task_name"),
            *("max_source_length", "max_target_length", "source_prefix", "logging_dir", "local_rank"),
        }
    ),
    generic=ARGUMENTS,
    rules=(
        *quantisation_rules(),
        *flag_rules("bnb_4bit_use_double_quant", "bnb_4bit_use_double_quant"),
        *dtype_rules(),
        *amp_rules(),
        *attention_rules(),
        *optimiser_rules("optim"),
        *trainer_rules(),
        *MODEL_RULES,
    ),
    defaults=defaults,
    not_judged=TRANSFORMERS_ROWS,
    arguments=of_transformers,
    trainer=trl_trainer,
    purpose=transformers_purpose,
    references=("deepspeed", "fsdp_config"),
)
