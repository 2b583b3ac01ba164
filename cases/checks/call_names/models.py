"""The names of the checks of ``cases.behaviour.models``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.models.building": (
        "gradients off, {name}",
        "logits off, {name}",
        "loss off, {name}",
    ),
    "cases.behaviour.models.heads": (
        "scores off",
        "loss off",
        "scores off, {name}",
        "loss off, {name}",
        "scores off, {model}",
        "refuses several rows, {model}",
        "scores off, {kind}",
        "loss off, {kind}",
    ),
    "cases.behaviour.models.losses": (
        "auxiliary loss off, {kind}",
        "loss off, {kind}",
        "dtype of the loss, {name}",
        "loss off its logits, {name}",
        "loss off, {model}, {name}",
        "loss off, {model}, {kind}",
    ),
    "cases.behaviour.models.resizing": (
        "rows, {name}, {wanted}",
        "vocab_size, {name}, {wanted}",
        "numbers of old rows that differ, {name}, {wanted}",
        "columns of logits, {name}, {wanted}",
        "logits of old tokens off, {name}, {wanted}",
        "head shares the embeddings, {name}, {wanted}",
        "largest distance from the mean, {name}",
        "deviation off, {name}",
        "mean, {name}",
    ),
    "cases.behaviour.models.rotary_settings": ("logits of late tokens off, {model}",),
}
