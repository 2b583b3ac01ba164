"""The names of the checks of ``cases.behaviour.distributed``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.distributed.between_passes": (
        "gradients off",
        "weights off",
        "gradients of the first window off",
        "windows",
        "names after an evaluation, {title}",
        "parameters are leaves, {title}",
        "names after training, {title}",
        "loss after training off, {title}",
        "gradients of the window of one rank off",
        "gradients off, {title}",
        "weights off, {title}",
        "moments are sharded, {kind}",
        "moments that differ after loading",
    ),
    "cases.behaviour.distributed.checkpoint_contents": (
        "tensors that differ",
        "an object",
        "tensors that differ, converted back",
        "an object, converted back",
        "ids that are the same",
        "tensors that differ, save {number}",
        "where it is read, {name}",
        "tensors of the metadata, {name}",
        "number",
        "where it was saved, {name}",
    ),
    "cases.behaviour.distributed.communication_hooks": (
        "gradient before PowerSGD off, {title}",
        "part of a gradient beyond its rank, {title}",
        "sent gradients and the error off, {title}",
        "numbers before compression, {title}",
        "numbers after compression, {title}",
        "gradients off, {title}",
        "sent gradients and the error off",
        "gradient of the last step off",
        "weights off, step {step}",
        "largest error, in half steps",
    ),
}
