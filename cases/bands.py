"""How far a case may be from its twin: one rule for every cell, from the arithmetic of its coarsest dtype.

An error is measured relative to the reference, in units of the unit roundoff ``u`` of the coarsest format that a
number passes through (Higham, Accuracy and Stability of Numerical Algorithms, section 2.1), plus what the twin itself
rounds in float32. Rounding scatters: it is nearly orthogonal to a gradient, so that the distance to the twin has to be
allowed some tens of u, while the share of the twin that is found in the result (its scale) is off by less than one.
A wrong scale, such as a sum for a mean or a loss that is one per cent off, is seen there. The factors are two to three
times the largest error of clean runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.verdict import Check, at_most

if TYPE_CHECKING:
    from cases.options import Options
    from cases.twin import Trajectory

UNIT_ROUNDOFF = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 1 / 254}

# What may be off: (in units of u, in units of float32's u).
FACTORS = {
    "loss": (1.0, 8.0),
    "gradient": (24.0, 64.0),  # per tensor, distance
    "gradient scale": (2.0, 32.0),  # of all tensors of a step together
    "tensor scale": (5.0, 64.0),  # per gradient tensor
    "weights": (8.0, 32.0),  # per tensor, distance
    "update scale": (2.0, 32.0),  # of all that moved, together
    "logits": (16.0, 16.0),
    "logit scale": (2.0, 16.0),
}


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
    errors = {
        "loss": worst_loss(found, twin),
        "gradient": worst_gradient(found, twin),
        "gradient scale": worst(scale(a, b) for a, b in zip(found.gradients, twin.gradients, strict=True)),
        "tensor scale": worst_tensor_scale(found, twin),
        "weights": worst_tensor(found.after, twin.after),
        "update scale": scale(update(found, twin), update(twin, twin)),
    }
    return [
        Check("trained parameters as in the twin", missing or "all", "==", "all", ok=same),
        *(at_most(kind, error, bound(kind, options)) for kind, error in errors.items()),
    ]


def inference(found: Any, twin: Any, options: Options) -> list[Check]:
    """Logits of one batch, float32, shape (batch, length, vocabulary)."""
    return [
        at_most("logits", relative(found, twin), bound("logits", options)),
        at_most("logit scale", scale({"": found}, {"": twin}), bound("logit scale", options)),
    ]


def update(run: Trajectory, start: Trajectory) -> dict[str, Any]:
    """What training added to each weight; both runs started from the twin's numbers."""
    return {name: weight - start.before[name] for name, weight in run.after.items() if name in start.before}


def scale(found: dict[str, Any], twin: dict[str, Any]) -> float:
    """``|<found, twin> / <twin, twin> - 1|`` over all tensors as one vector: 0 for the right size, 1 for twice it."""
    if set(found) != set(twin) or any(found[name].shape != twin[name].shape for name in twin):
        return float("inf")
    inner = sum(float((found[name].double() * twin[name].double()).sum()) for name in twin)
    return abs(inner / max(sum(float(each.double().square().sum()) for each in twin.values()), 1e-30) - 1)


def worst_tensor_scale(found: Trajectory, twin: Trajectory) -> float:
    pairs = zip(found.gradients, twin.gradients, strict=True)
    return worst(scale({n: a[n]} if n in a else {}, {n: b[n]}) for a, b in pairs for n in b)


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
