"""The names of the checks of ``cases.behaviour.optimising``, by module; see ``cases.checks.names``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECKS: Mapping[str, tuple[str, ...]] = {
    "cases.behaviour.optimising.adafactor_steps": (
        "movement off, {shape} dimensions, {title}",
        "state, {shape} dimensions, {title}",
        "refused, {join}",
        "rate before",
        "rate off, step {step}",
    ),
    "cases.behaviour.optimising.clipped_gradients": (
        "gradients off, {title}",
        "norm off, {title}",
        "norm of one tensor off",
        "norm of no gradients",
        "entries off, foreach={foreach}, bound {bound}",
        "gradients stay, {title}",
        "finite norm, {title}",
        "norm off, {kind}",
    ),
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
    "cases.behaviour.optimising.torch_plateaus": (
        "values with other rates, {title}",
        "average off, {kind}",
        "averaged models, {kind}",
        "buffers that differ from the last ones, {kind}",
    ),
    "cases.behaviour.optimising.torch_schedules": ("rates off, {title}",),
}
