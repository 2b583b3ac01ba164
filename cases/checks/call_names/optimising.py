"""The names of the checks of ``cases.behaviour.optimising``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.optimising.optimiser_hooks": (
        "loss that step returns",
        "weights",
        "hooks of state_dict",
        "what a hook added",
        "hooks of load_state_dict",
        "rate that a hook set",
        "weights of the first group",
        "weights of the second group",
        "gradients set to zero",
        "gradients dropped",
        "a parameter of two groups is refused",
        "hooks of a step, {kind}",
    ),
    "cases.behaviour.optimising.schedule_functions": (
        "learning rate off, last_epoch",
        "steps counted",
        "learning rate off, {rise} and {fall}",
        "learning rate off, {title}",
        "learning rate off, {title}, warm-up {warmup}",
    ),
    "cases.behaviour.optimising.torch_optimisers": (
        "steps off, in units of what rounding may do, {title}",
        "average off, in units of what rounding may do, {name}",
        "arguments lost, {name}",
        "arguments not loaded, {name}",
    ),
}
