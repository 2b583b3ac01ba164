"""Returns the arguments of a trainer under the names of transformers and TRL, whatever tool a file belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from reports.answers.configuration.dialects import normalise

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMER_NAMES: Final = {
    "evaluation_strategy": "eval_strategy",
    "max_seq_length": "max_length",
    "torch_dtype": "dtype",
    "use_liger": "use_liger_kernel",
}
LLAMAFACTORY_NAMES: Final = {
    **FORMER_NAMES,
    "cutoff_len": "max_length",
    "enable_liger_kernel": "use_liger_kernel",
    "neat_packing": "packing",
    "pref_beta": "beta",
    "pref_loss": "loss_type",
    "dpo_label_smoothing": "label_smoothing",
    "kto_chosen_weight": "desirable_weight",
    "kto_rejected_weight": "undesirable_weight",
    "preprocessing_num_workers": "dataset_num_proc",
    "additional_target": "lora_modules_to_save",
    "lora_rank": "lora_r",
    "lora_target": "lora_target_modules",
}
V1_NAMES: Final = {
    "micro_batch_size": "per_device_train_batch_size",
    "cutoff_len": "max_length",
    "enable_activation_checkpointing": "gradient_checkpointing",
    "pref_beta": "beta",
    "pref_loss": "loss_type",
    "dpo_label_smoothing": "label_smoothing",
    **{
        name: name
        for name in (
            *("output_dir", "learning_rate", "num_train_epochs", "max_steps", "max_grad_norm", "bf16", "seed"),
            *("save_steps", "save_total_limit", "logging_steps", "resume_from_checkpoint", "full_determinism"),
            "ld_alpha",
        )
    },
}
# Axolotl passes these on to the trainer, according to its `core/builders`.
AXOLOTL_NAMES: Final = {
    "micro_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "num_epochs": "num_train_epochs",
    "optimizer": "optim",
    "lr_scheduler": "lr_scheduler_type",
    "sequence_len": "max_length",
    "sample_packing": "packing",
    "eval_sample_packing": "eval_packing",
    "dpo_label_smoothing": "label_smoothing",
    "dpo_loss_type": "loss_type",
    "dpo_use_weighting": "use_weighting",
    "dpo_use_liger_kernel": "use_liger_kernel",
    "dpo_padding_free": "padding_free",
    "rl_beta": "beta",
    "kto_desirable_weight": "desirable_weight",
    "kto_undesirable_weight": "undesirable_weight",
    "include_tokens_per_second": "include_num_input_tokens_seen",
    **{
        name: name
        for name in (
            *("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "gradient_accumulation_steps", "seed"),
            *("learning_rate", "weight_decay", "warmup_steps", "warmup_ratio", "max_steps", "logging_steps"),
            *(
                "save_steps",
                "save_strategy",
                "save_total_limit",
                "save_only_model",
                "save_first_step",
                "save_safetensors",
            ),
            *("eval_steps", "eval_strategy", "load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
            *("output_dir", "resume_from_checkpoint", "group_by_length", "lr_scheduler_kwargs", "torch_compile"),
            *("torch_compile_backend", "torch_compile_mode", "torch_empty_cache_steps", "neftune_noise_alpha"),
            *("gradient_checkpointing", "gradient_checkpointing_kwargs", "fsdp", "fsdp_config", "deepspeed", "fp16"),
            *("tf32", "optim_args", "optim_target_modules", "auto_find_batch_size", "ddp_find_unused_parameters"),
            *("ddp_timeout", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "dataloader_num_workers"),
            *("dataloader_pin_memory", "dataloader_prefetch_factor", "dataloader_drop_last", "accelerator_config"),
            *("remove_unused_columns", "include_tkps", "precompute_ref_log_probs", "center_rewards_coefficient"),
            *("auto_resume_from_checkpoints", "merge_lora"),
            *("activation_offloading", "hub_model_id", "hub_strategy", "report_to", "loraplus_lr_ratio"),
        )
    },
}


def argument_value(value: Any) -> Any:
    """Return a value with its flags, numbers and nulls as such, and any other text unchanged."""
    if isinstance(value, dict):
        return {name: argument_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [argument_value(each) for each in value]
    if not isinstance(value, str):
        return value
    normal = normalise(value)
    if not isinstance(normal, str):
        return normal
    try:
        return float(normal) if normal[:1] in "+-.0123456789" else value
    except ValueError:
        return value


def stated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values at the top of a file that are not empty."""
    found = {name: argument_value(value) for name, value in values.items() if "." not in name}
    # YAML reads the strategy `no` as a flag
    return {
        name: "no" if value is False and name.endswith("_strategy") else value
        for name, value in found.items()
        if value is not None
    }


def of_transformers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a file that uses the names of transformers and TRL, of any release."""
    return {FORMER_NAMES.get(name, name): value for name, value in stated(values).items()}


def of_llamafactory(values: Mapping[str, Any]) -> dict[str, Any]:
    named = {LLAMAFACTORY_NAMES.get(name, name): value for name, value in stated(values).items()}
    if "disable_gradient_checkpointing" in named:
        named["gradient_checkpointing"] = named.pop("disable_gradient_checkpointing") is not True
    return named


def of_llamafactory_v1(values: Mapping[str, Any]) -> dict[str, Any]:
    found = stated(values)
    named = {V1_NAMES[name]: value for name, value in found.items() if name in V1_NAMES}
    if "save_epochs" in found:
        named["save_strategy"] = "epoch"
    elif "save_steps" in named:
        named["save_strategy"] = "steps"
    return named


def of_axolotl(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that Axolotl passes on; it derives the strategies of saving and evaluating from others."""
    found = stated(values)
    named = {AXOLOTL_NAMES[name]: value for name, value in found.items() if name in AXOLOTL_NAMES}
    if found.get("bf16") == "full":
        named["bf16_full_eval"] = True
    elif "bf16" in found or "bfloat16" in found:
        named["bf16"] = found.get("bf16") or found.get("bfloat16", False)
    if found.get("save_steps") or found.get("saves_per_epoch"):
        named["save_strategy"] = "steps"
    named.setdefault("save_strategy", "epoch")
    if found.get("eval_steps") or found.get("evals_per_epoch"):
        named["eval_strategy"] = "steps"
    if not found.get("val_set_size") and not found.get("test_datasets"):
        named["eval_strategy"] = "no"
    return named
