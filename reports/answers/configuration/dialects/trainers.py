"""Tells what a file trains with, and what it is for if not for training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from reports.answers.configuration.dialects import is_enabled, normalise

if TYPE_CHECKING:
    from collections.abc import Mapping

SFT, PRETRAINING = "sft", "pretraining"
DPO_KEYS: Final = frozenset(
    {
        *("beta", "precompute_ref_log_probs", "precompute_ref_batch_size", "f_divergence_type", "max_prompt_length"),
        *(
            "label_smoothing",
            "sync_ref_model",
            "loss_weights",
            "discopop_tau",
            "rpo_alpha",
            "ld_alpha",
            "use_weighting",
        ),
        *(
            "reference_free",
            "ref_adapter_name",
            "model_adapter_name",
            "f_alpha_divergence_coef",
            "ref_model_mixup_alpha",
        ),
    }
)
KTO_KEYS: Final = frozenset({"desirable_weight", "undesirable_weight"})
REWARD_KEYS: Final = frozenset({"center_rewards_coefficient"})
GENERATING_KEYS: Final = frozenset(
    {
        *(
            "num_generations",
            "reward_funcs",
            "reward_weights",
            "num_iterations",
            "scale_rewards",
            "steps_per_generation",
        ),
        *("max_completion_length", "generation_batch_size", "importance_sampling_level", "epsilon_high", "vllm_mode"),
        *("log_completions", "mask_truncated_completions", "num_generations_eval"),
    }
)
RLOO_KEYS: Final = frozenset({"rloo_k", "normalize_advantages", "reward_clip_range"})
SFT_KEYS: Final = frozenset(
    {
        *("dataset_text_field", "packing", "assistant_only_loss", "completion_only_loss", "max_seq_length"),
        *("dataset_kwargs", "packing_strategy", "eval_packing"),
    }
)
SFT_LOSSES: Final = ("nll", "dft", "chunked_nll")
KTO_LOSSES: Final = ("kto", "apo_zero_unpaired")
NAMED: Final = ("orpo", "dpo", "kto", "grpo", "rloo", "reward", "ppo", "cpo", "bco", "gkd", "xpo", "sft")
OTHER_NAMES: Final = {"rm": "reward", "reward_modeling": "reward", "simpo": "cpo", "pt": PRETRAINING}

MERGE, EXPORT, PREDICT, EVALUATION = "merge", "export", "predict", "evaluation"
PREPROCESS, CHAT, INFERENCE, QUANTISE = "preprocess", "chat", "inference", "quantise"
ACTIVITIES: Final = {
    MERGE: "merging",
    EXPORT: "export",
    PREDICT: "prediction",
    EVALUATION: "evaluation",
    PREPROCESS: "preprocessing",
    CHAT: "chat",
    INFERENCE: "inference",
    QUANTISE: "quantisation",
}
# Subcommands of llamafactory-cli, axolotl and trl that do not train.
SUBCOMMANDS: Final = {
    "export": EXPORT,
    "merge": MERGE,
    "merge-lora": MERGE,
    "merge_lora": MERGE,
    "merge-sharded-fsdp-weights": MERGE,
    "merge_sharded_fsdp_weights": MERGE,
    "chat": CHAT,
    "webchat": CHAT,
    "api": INFERENCE,
    "inference": INFERENCE,
    "vllm-serve": INFERENCE,
    "vllm_serve": INFERENCE,
    "eval": EVALUATION,
    "evaluate": EVALUATION,
    "lm-eval": EVALUATION,
    "preprocess": PREPROCESS,
    "quantize": QUANTISE,
}
SCRIPTS: Final = {
    "eval": EVALUATION,
    "evaluate": EVALUATION,
    "evaluation": EVALUATION,
    "benchmark": EVALUATION,
    "infer": INFERENCE,
    "inference": INFERENCE,
    "generate": INFERENCE,
    "predict": PREDICT,
    "chat": CHAT,
    "merge": MERGE,
    "export": EXPORT,
    "preprocess": PREPROCESS,
    "tokenize": PREPROCESS,
    "quantize": QUANTISE,
}


def words_of(text: str) -> list[str]:
    return re.split(r"[^a-z0-9]+", text.lower())


def named_trainer(text: str) -> str:
    """Return the trainer that a program or path names, such as ``scripts/dpo.py``; empty if it names none."""
    words = words_of(text)
    return next((OTHER_NAMES.get(each, each) for each in words if each in NAMED or each in OTHER_NAMES), "")


def subcommand_purpose(words: str) -> str:
    """Return what a command such as ``llamafactory-cli export`` or a script such as ``eval.py`` is for.

    Returns an empty text for training.
    """
    first = words_of(words.partition(" ")[0])
    if first[-1:] == ["py"] and not {"train", "finetune", "tune", "run", *NAMED} & set(first):
        return next((SCRIPTS[each] for each in first if each in SCRIPTS), "")
    return next((SUBCOMMANDS[each] for each in words.split()[1:2] if each in SUBCOMMANDS), "")


def trl_trainer(values: Mapping[str, Any], words: str) -> str:
    """Return the trainer that a command names, or else the one whose arguments a file has."""
    loss = values.get("loss_type")
    keys = {key for key, value in values.items() if value is not None}
    for found, names in ((RLOO_KEYS, "rloo"), (KTO_KEYS, "kto"), (REWARD_KEYS, "reward")):
        if keys & found:
            return names
    named = named_trainer(words) or named_trainer(str(values.get("hub_model_id") or values.get("output_dir") or ""))
    if keys & GENERATING_KEYS:
        return named if named in ("rloo", "orpo", "cpo", "ppo", "gkd", "xpo") else "grpo"
    if loss in KTO_LOSSES:
        return "kto"
    if keys & DPO_KEYS or (loss is not None and loss not in SFT_LOSSES):
        return named if named not in ("", SFT, PRETRAINING) else "dpo"
    return SFT if keys & SFT_KEYS else named or SFT


def trl_purpose(_values: Mapping[str, Any], words: str) -> str:
    return subcommand_purpose(words)


def transformers_purpose(values: Mapping[str, Any], words: str) -> str:
    """Return what the flags ``do_train``, ``do_eval`` and ``do_predict`` request; training without any of them."""
    if subcommand_purpose(words):
        return subcommand_purpose(words)
    if normalise(values.get("do_train")) is True:
        return ""
    if is_enabled(values.get("do_predict")):
        return PREDICT
    return EVALUATION if is_enabled(values.get("do_eval")) and normalise(values.get("do_train")) is False else ""


def axolotl_trainer(values: Mapping[str, Any], _words: str) -> str:
    preference = normalise(values.get("rl"))
    if preference:
        return {"ipo": "dpo", "gdpo": "grpo", "simpo": "cpo"}.get(str(preference), str(preference))
    if is_enabled(values.get("reward_model")) or is_enabled(values.get("process_reward_model")):
        return "reward"
    return PRETRAINING if values.get("pretraining_dataset") else SFT


def axolotl_purpose(_values: Mapping[str, Any], words: str) -> str:
    return subcommand_purpose(words)


def llamafactory_trainer(values: Mapping[str, Any], _words: str) -> str:
    stage = str(normalise(values.get("stage")) or SFT)
    loss = str(values.get("pref_loss"))
    if stage == "dpo" and loss in ("orpo", "simpo"):
        return "orpo" if loss == "orpo" else "cpo"
    return {"pt": PRETRAINING, "rm": "reward"}.get(stage, stage)


def llamafactory_purpose(values: Mapping[str, Any], words: str) -> str:
    """Return what a file is for: LLaMA-Factory reads files for training, evaluation, export and chat alike."""
    named = subcommand_purpose(words)
    if named in (EXPORT, "") and values.get("export_dir") and normalise(values.get("do_train")) is not True:
        return QUANTISE if values.get("export_quantization_bit") else MERGE if adapters(values) else EXPORT
    if named:
        return named
    if normalise(values.get("do_train")) is True:
        return PREPROCESS if only_tokenises(values) else ""
    if is_enabled(values.get("do_predict")):
        return PREDICT
    if is_enabled(values.get("do_eval")) or (values.get("task") and values.get("n_shot") is not None):
        return EVALUATION
    return INFERENCE if values.get("infer_backend") or not trains(values) else ""


def adapters(values: Mapping[str, Any]) -> bool:
    return bool(values.get("adapter_name_or_path"))


def only_tokenises(values: Mapping[str, Any]) -> bool:
    """Tell if a run ends once it has written the tokens of its data set."""
    trains_later = ("learning_rate", "per_device_train_batch_size", "num_train_epochs", "max_steps")
    return bool(values.get("tokenized_path")) and not any(key in values for key in trains_later)


def trains(values: Mapping[str, Any]) -> bool:
    """Tell if a file without ``do_train`` has settings of training, or too few settings to tell."""
    marks = ("stage", "dataset", "learning_rate", "per_device_train_batch_size", "lora_rank", "finetuning_type")
    return any(key in values for key in marks) or not adapters(values)


def llamafactory_v1_trainer(values: Mapping[str, Any], words: str) -> str:
    named = named_trainer(words)
    if named:
        return named
    return "dpo" if any(key in values for key in ("pref_loss", "pref_beta", "dpo_label_smoothing")) else SFT


def llamafactory_v1_purpose(values: Mapping[str, Any], words: str) -> str:
    named = subcommand_purpose(words)
    if named:
        return named
    if values.get("peft_config.export_dir"):
        return MERGE
    trains_on = values.get("train_dataset")
    return INFERENCE if not trains_on and (values.get("sample_backend") or values.get("max_new_tokens")) else ""
