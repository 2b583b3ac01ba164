"""The names of the checks of ``cases.behaviour.preferences``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.preferences.alignment": (
        "steps",
        "loss off",
        "logged loss off",
        "logged {metric} off",
        "gradient off",
        "weights off",
        "evaluated {metric} off",
    ),
    "cases.behaviour.preferences.arguments": (
        "{kind} looks for unused parameters",
        "use_reentrant of {kind}",
        "{kind} refuses a column {column}",
    ),
    "cases.behaviour.preferences.auxiliary_losses": ("what the coefficient adds, off, {kind}",),
    "cases.behaviour.preferences.continued_adapters": (
        "first loss off log 2",
        "weights of the reference that changed",
    ),
    "cases.behaviour.preferences.given_data": (
        "steps, {kind}",
        "weights that move, {kind}",
        "weights of the reference that would train, {kind}",
        "parts that the card lacks, {kind}",
        "mean reward, {title}",
    ),
    "cases.behaviour.preferences.grpo": ("expected share of clipped tokens",),
    "cases.behaviour.preferences.grpo_metrics": (
        "weights of the reference off",
        "dtype of the head",
        "dtypes of other weights",
        "entropy off",
    ),
    "cases.behaviour.preferences.grpo_rewards": (
        "steps that rewards see",
        "prompts",
        "ids of completions",
        "a column's values",
        "logged distance off",
        "steps of the table",
        "prompts of the table",
        "completions of the table",
        "extra column of the table",
        "{column} of the table off",
        "evaluated {metric} off, {name} of {group}",
    ),
    "cases.behaviour.preferences.grpo_rollouts": (
        "steps with a time, {accumulation}",
        "least time of a step, {accumulation}",
        "times of all steps over the whole time, {accumulation}",
        "rows that are kept, {threshold}",
    ),
    "cases.behaviour.preferences.kto": ("largest KL estimate",),
    "cases.behaviour.preferences.logged_metrics": (
        "entries of the log, {name}",
        "{metric} off, {name}",
        "largest expected share of hits, {name}",
        "entries of the log, {kind}",
        "loss off, {kind}",
        "metrics other than 0, {kind}",
    ),
    "cases.behaviour.preferences.references": (
        "first loss off log 2",
        "largest weight",
        "spread of the weights",
    ),
    "cases.behaviour.preferences.reward": ("loss of batch {place} off, {title}",),
    "cases.behaviour.preferences.scaled_logits": (
        "what the setting changes",
        "loss off, {setting} {value}",
    ),
}
