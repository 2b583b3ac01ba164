"""Compares tensors of modules with the reference: their distance, and how far rounding explains it.

Each operation rounds once, and roundings scatter, so that the distance of a tensor grows with the root of the number of
modules that were computed before it (Higham, Accuracy and Stability of Numerical Algorithms, section 2.8). The
tolerance is that root times a factor for each kind of tensor, in the units of ``cases.reference.tolerance``. A tensor
of few numbers counts by the root of their number. Trained weights have the tolerance of the cell's own checks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.reference import quantisation, tolerance
from cases.space.options import TRAINING

if TYPE_CHECKING:
    from cases.space.options import Options

# In units of the coarse and of float32's roundoff: two to three times the largest distance of clean cells, which is 0.7
# (bfloat16) and 2.5 (float32) for outputs, 1.5 and 5.7 for gradients.
FACTORS = {"input": (2.0, 4.0), "output": (2.0, 4.0), "gradient": (4.0, 8.0)}
OF_WEIGHTS = {"weight gradient": "gradient", "weight": "weights"}
MERGES = ("merge", "merge_reload")
BATCHED = 2  # dimensions that a mask has
HEADS = 4  # dimensions of a tensor split into heads


def allowed(kind: str, options: Options, position: int, numel: int) -> float:
    """The relative distance that rounding explains; ``position`` counts the modules that were computed before."""
    few = max(1.0, math.sqrt(tolerance.FEW / numel))
    if kind in OF_WEIGHTS:
        return few * tolerance.bound(OF_WEIGHTS[kind], options)
    coarse, fine = FACTORS[kind]
    depth = math.sqrt(1 + position)
    rounded = coarse * tolerance.roundoff(options) + fine * tolerance.UNIT_ROUNDOFF["fp32"]
    start = tolerance.CONDITION.get(options.method, 0.0) * tolerance.UNIT_ROUNDOFF["fp32"]
    state = 5.0 * tolerance.state_roundoff(options)
    return few * (depth * rounded + 3.0 * start + state)


def merging(options: Options) -> float:
    """What a merge adds in an evaluation: it rounds each weight once more."""
    if options.flow not in MERGES or options.flow not in TRAINING:
        return 0.0
    return tolerance.merge_bound(options) if options.quant == "none" else 6.0 * quantisation.roundoff(options.quant)


def distance(found: Any, reference: Any, real: Any = None) -> float | None:
    """``||found - reference|| / ||reference||`` over real tokens; None if the shapes do not correspond.

    ``real``: bool (batch, length), False at padding, whose outputs mean nothing.
    """
    found = matched(found, reference)
    if found is None:
        return None
    if real is not None and tuple(reference.shape[:BATCHED]) == tuple(real.shape):
        found, reference = found[real], reference[real]
    size = float(reference.double().norm())
    if not size:
        return 0.0 if not float(found.double().norm()) else float("inf")
    return float((found.double() - reference.double()).norm()) / size


def matched(found: Any, reference: Any) -> Any:
    """The tensor in the reference's shape: rows may share one, tokens may be flat, heads may come after positions."""
    if tuple(found.shape) == tuple(reference.shape):
        return found
    if found.dim() > 1 and tuple(found.shape) == (1, *reference.shape[1:]):
        return found.expand_as(reference)
    if reference.dim() == HEADS and tuple(found.shape) == tuple(reference.transpose(1, 2).shape):
        return found.transpose(1, 2)
    flat = (reference.shape[:BATCHED].numel(), *reference.shape[BATCHED:])
    return found.reshape(reference.shape) if tuple(found.shape) == tuple(flat) else None
