"""How far a case may be from its twin: one rule for every cell, from the arithmetic of its coarsest dtype.

An error is measured relative to the reference, in units of the unit roundoff ``u`` of the coarsest format that a
number passes through (Higham, Accuracy and Stability of Numerical Algorithms, section 2.1), plus what the twin itself
rounds in float32. The factors are two to three times the largest error seen in clean runs of a network of this size,
and far below what a missing all-reduce or a wrong scale does, which is an error of order one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.verdict import Check, at_most

if TYPE_CHECKING:
    from cases.options import Options
    from cases.twin import Trajectory

UNIT_ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 1 / 254}

# What a loss, a gradient tensor, a weight tensor and a logit tensor may be off: (in units of u, in units of float32's).
FACTORS = {"loss": (4.0, 8.0), "gradient": (24.0, 64.0), "weights": (8.0, 32.0), "logits": (16.0, 16.0)}


def roundoff(options: Options) -> float:
    """The coarsest rounding in a case: of its load dtype, its autocast, or LLM.int8's 8-bit activations."""
    formats = {options.load_dtype, *({options.autocast} - {"off"}), *({options.quant} & {"int8"})}
    return max(UNIT_ROUNDOFF[name] for name in formats)


def bound(kind: str, options: Options) -> float:
    coarse, fine = FACTORS[kind]
    return coarse * roundoff(options) + fine * UNIT_ROUNDOFF["fp32"]


def differential(found: Trajectory, twin: Trajectory, options: Options) -> list[Check]:
    """Loss of every step, gradient of every trainable parameter at every step, and every trained weight at the end."""
    same = set(found.after) == set(twin.after)
    missing = "" if same else "+".join(sorted(set(found.after) ^ set(twin.after)))[:200]
    named = [Check("trained parameters as in the twin", missing or "all", "==", "all", ok=same)]
    return [
        *named,
        at_most("loss", worst_loss(found, twin), bound("loss", options)),
        at_most("gradient", worst_gradient(found, twin), bound("gradient", options)),
        at_most("weights", worst_tensor(found.after, twin.after), bound("weights", options)),
    ]


def worst_loss(found: Trajectory, twin: Trajectory) -> float:
    """Largest relative error of a step's loss."""
    return worst(abs(a - b) / abs(b) for a, b in zip(found.losses, twin.losses, strict=True))


def worst_gradient(found: Trajectory, twin: Trajectory) -> float:
    return worst(worst_tensor(a, b) for a, b in zip(found.gradients, twin.gradients, strict=True))


def worst_tensor(found: dict[str, Any], twin: dict[str, Any]) -> float:
    """Largest ||found - reference|| / ||reference|| over the tensors; a missing tensor is infinitely far."""
    return worst(
        relative(found[name], reference) if name in found else float("inf") for name, reference in twin.items()
    )


def relative(found: Any, reference: Any) -> float:
    if found.shape != reference.shape:
        return float("inf")
    return float((found.double() - reference.double()).norm() / reference.double().norm().clamp_min(1e-30))


def worst(errors: Any) -> float:
    """The largest, where NaN counts as larger than anything."""
    numbers = list(errors)
    return next((n for n in numbers if n != n), max(numbers, default=float("inf")))  # noqa: PLR0124 - NaN is not itself
