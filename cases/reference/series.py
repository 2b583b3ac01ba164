"""The course of a job beside that of its twin, as a few numbers: the loss and the gradient norm of each step.

Unlike the checks, which compare tensor by tensor, the curves show how far a job went astray, and from which step on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cases.reference.twin import Trajectory

DIGITS = 9  # significant ones, which tell any two float32 apart


def series(found: Trajectory, twin: Trajectory) -> dict[str, tuple[float, ...]]:
    """Return one value per step by name. The norm is that of all gradients of a step as one vector."""
    return {
        "loss": rounded(found.losses),
        "twin loss": rounded(twin.losses),
        "gradient norm": rounded(map(norm, found.gradients)),
        "twin gradient norm": rounded(map(norm, twin.gradients)),
    }


def norm(gradients: Mapping[str, Any]) -> float:
    return float(sum(float(each.double().square().sum()) for each in gradients.values()) ** 0.5)


def rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in values)
