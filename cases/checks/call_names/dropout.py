"""The names of the checks of ``cases.behaviour.dropout``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.dropout.masks": (
        "share dropped off{after}",
        "kept elements off{after}",
        "share dropped in one line off{after}",
    ),
    "cases.behaviour.dropout.model_dropout": (
        "{name} to later positions",
        "attention in evaluation off",
        "difference of two dimensions of a head",
        "number of kept weights off a whole one",
        "share of attention dropped off",
        "share dropped off in {name}{mode}",
        "passes seen in {name}",
        "noise, in units of its bound",
        "share of noise below half its bound off",
        "share of positive noise off",
        "elements evaluated",
        "noise in evaluation",
        "noise after the training",
        "logits that noise {noise} changes in evaluation",
        "noise {noise} acts in training",
    ),
    "cases.behaviour.dropout.noise_of_architectures": (
        "share of dropped weights off, {model}",
        "kept weights off, {model}",
        "the same seed, {title}",
        "another seed, {title}",
        "evaluation, {title}",
        "outputs off, training={training}",
        "inputs within the noise, training={training}",
    ),
    "cases.behaviour.dropout.randomness": (
        "share of sums without an input off",
        "update off in evaluation",
        "update off after eval within disable_adapter",
        "share of differing masks off, two passes",
        "share of differing masks off, two layers",
        "elements that differ with the same seed",
        "elements that no pair of masks explains",
        "smallest update",
        "adapter's update while disabled",
        "share of elements with kept {parts} off",
    ),
    "cases.behaviour.dropout.recomputed_masks": (
        "forward passes of layers",
        "gradients off",
        "random numbers after the step that differ",
        "gradients with another seed off",
        "gradients off, use_reentrant={reentrant}",
        "gradients off without the state, use_reentrant={reentrant}",
        "mask again with the same seed",
        "same mask in two passes",
        "masks of pass {place}, device_specific={specific}",
    ),
}
