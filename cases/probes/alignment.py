"""Probes of TRL's trainers: the trainers and options that a version offers, and their requirements."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cases.behaviour import alignment
from cases.space.verdict import LackingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cases.space.place import Place


def option(_place: Place, _cache: Path, *, kind: str, name: str) -> None:
    if name not in alignment.options_of(kind):
        raise LackingError(f"{kind}Config has no {name}")


def robust_loss(_place: Place, _cache: Path) -> None:
    if not alignment.source_mentions("DPO", '"robust"'):
        raise LackingError("DPOTrainer knows no loss_type robust")


def smoothed_labels(_place: Place, _cache: Path) -> None:
    """Versions with one function for all losses smooth labels in the sigmoid's; later ones document that they do not."""
    if not hasattr(alignment.named("DPOTrainer"), "dpo_loss"):
        raise LackingError("label_smoothing belongs to other losses")


# By the name of the requirement: the probe, and the beginning of the sentence of the skip.
REQUIRED: Mapping[str, tuple[Callable[[Place, Path], None], str]] = {
    "dpo_robust": (robust_loss, "this trl has no robust DPO"),
    "dpo_label_smoothing": (smoothed_labels, "this trl smooths no labels of the sigmoid loss"),
    **{
        f"{kind.lower()}_{name}": (partial(option, kind=kind, name=name), f"this trl has no {name} in {kind}Trainer")
        for kind, name in (
            ("DPO", "reference_free"),
            ("DPO", "rpo_alpha"),
            ("DPO", "loss_weights"),
        )
    },
}
