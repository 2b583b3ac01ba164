"""The names of the checks of ``cases.behaviour.adapters.utilities``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.adapters.utilities.base_states": (
        "base's tensors that are others, {title}",
        "names that fit not, {title}",
        "base's tensors that are others, {title}, set",
        "trained tensors that are others, {title}",
        "refused, {title}",
        "weight after the refusal, {title}",
        "names, {title}",
        "weight, {title}",
    ),
    "cases.behaviour.adapters.utilities.helpers": (
        "all {title}",
        "{title}, {share} of them",
        "{title}, {number} of them",
        "{title}, of at most {bound}",
        "both at once",
        "modules without larger ones",
        "parameters of a model without experts",
        "dtypes of frozen weights, {title}",
        "dtypes of trained weights, {title}",
        "weights with other values, {title}",
        "parameters of {name}, after {title}",
        "logits are the same, after {title}",
        "generated tokens, after {title}",
        "parameters of {name} of another model",
        "active adapters, {title}",
        "weights off, {name}, {title}",
        "intruders, {name}, {title}",
        "weights of the old adapter off, {name}, {title}",
    ),
    "cases.behaviour.adapters.utilities.mixed_models": (
        "weights off, {title}",
        "trained adapters, {title}",
        "weights off, {title}, disabled",
        "weights off, {title}, enabled again",
        "weights off, merged",
        "layers, merged",
        "weights off, unloaded",
        "weights off, after deletion",
        "tensors left of the deleted adapter",
        "weights off, {chosen}",
        "weights, {chosen}",
    ),
    "cases.behaviour.adapters.utilities.prompts_of_heads": (
        "{name} off, {title}",
        "{name} that the prompt changes, {title}",
        "loss off, {title}",
        "parts with a gradient, {title}",
        "loss off, QUESTION_ANS, {kind}",
    ),
    "cases.behaviour.adapters.utilities.rarer_methods": (
        "logits that a new {key} changes",
        "logits that a trained {key} changes",
        "logits off while {key} is disabled",
        "logits off after {key} was disabled",
        "trained tensors of {key} that the file lacks",
        "logits off after loading {key}",
        "trained tensors of {key} without a gradient",
        "methods",
        "trained tensors of {key} after loading",
        "trained tensors of {key}, loaded to train",
        "update off, {name}, task {task}",
        "logits off, row {row}",
        "update off, layer {number}",
        "logits off",
        "tokens with a gradient",
    ),
}
