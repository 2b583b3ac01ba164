"""Rules for PEFT's ``adapter_config.json``, which describes an adapter."""

# ruff: noqa: FBT003 - values of flags, in rules of a table
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reports.answers.configuration.dialects import (
    ADAPTER,
    Containing,
    Dialect,
    Excluding,
    Rule,
    UnmeasuredSetting,
)
from reports.answers.configuration.dialects.trl import model_rules
from reports.answers.configuration.dialects.unmeasured import model_rows, not_looked_at, unmeasured

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from cases.space.options import Value

OFF = (False, None)
PLAIN_STARTS = (None, True, False, "gaussian")
METHODS = {
    "LOHA": "loha",
    "LOKR": "lokr",
    "IA3": "ia3",
    "ADALORA": "adalora",
    "VERA": "vera",
    "PROMPT_TUNING": "prompt",
    "PREFIX_TUNING": "prefix",
}
EMBEDDINGS = ("embed_tokens", "wte", "word_embeddings", "embed_in")


def defaults(_values: Mapping[str, Value], _versions: Mapping[str, Version]) -> dict[str, Value]:
    return {}


def lora_keys(**more: Any) -> dict[str, Any]:
    usual = {"peft_type": "LORA", "use_dora": OFF, "use_rslora": OFF, "init_lora_weights": PLAIN_STARTS}
    return usual | more


ADAPTER_CONFIG = Dialect(
    name="PEFT adapter",
    role=ADAPTER,
    marks=frozenset(
        {
            *("peft_type", "base_model_name_or_path", "inference_mode", "auto_mapping", "peft_version"),
            *("init_lora_weights", "layers_to_transform", "fan_in_fan_out", "rank_pattern", "alpha_pattern"),
        }
    ),
    rules=(
        Rule("method", "dora", lora_keys(use_dora=True)),
        Rule("method", "rslora", lora_keys(use_rslora=True)),
        Rule("method", "pissa", lora_keys(init_lora_weights=Containing("pissa"))),
        Rule("method", "olora", lora_keys(init_lora_weights="olora")),
        Rule("method", "loftq", lora_keys(init_lora_weights="loftq")),
        Rule("method", "lora", lora_keys()),
        *(Rule("method", method, {"peft_type": kind}) for kind, method in METHODS.items()),
        Rule("modules_to_save", "lm_head", {"modules_to_save": Containing("lm_head")}),
        *(Rule("target_embeddings", True, {"target_modules": Containing(word)}) for word in EMBEDDINGS),
        *model_rules("base_model_name_or_path"),
    ),
    defaults=defaults,
    not_judged=(
        UnmeasuredSetting("bias", "trained biases", ("all", "lora_only")),
        *unmeasured(
            ("use_qalora", "QALoRA"),
            ("use_bdlora", "block-diagonal LoRA"),
            ("alora_invocation_tokens", "activated LoRA"),
            ("arrow_config", "Arrow"),
            ("kasa_config", "KaSA"),
            ("velora_config", "VeLoRA"),
            ("monteclora_config", "MonteCLoRA"),
            ("lora_bias", "biases of LoRA"),
            ("megatron_config", "Megatron"),
            ("target_parameters", "LoRA on parameters, as of mixtures of experts"),
            ("layer_replication", "replicated layers"),
            ("trainable_token_indices", "trained tokens"),
        ),
        UnmeasuredSetting(
            "init_lora_weights", "a start by {value}", Excluding(("gaussian", "pissa", "olora", "loftq"))
        ),
        *not_looked_at(
            ("layers_to_transform", "an adapter on some layers"),
            ("rank_pattern", "ranks by layer"),
            ("alpha_pattern", "scalings by layer"),
        ),
        *model_rows("base_model_name_or_path"),
    ),
)
