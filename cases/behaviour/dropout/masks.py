"""Observed dropout: the share of dropped elements and the scale of the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from cases.space.verdict import Check, at_most

if TYPE_CHECKING:
    from collections.abc import Iterator

FALSE_ALARM = 1e-6
SAME = 1e-5  # relative, of a kept element


def bound(count: int, false_alarm: float = FALSE_ALARM) -> float:
    """How far a share of ``count`` independent draws is off its expectation at most, but for ``false_alarm``.

    Hoeffding's inequality: https://doi.org/10.1080/01621459.1963.10500830, theorem 2.
    """
    return math.sqrt(math.log(2 / false_alarm) / (2 * count))


def dropped(found: Any, whole: Any, rate: float, name: str = "") -> Iterator[Check]:
    """Compare with dropout's definition: each element is zero with probability ``rate``, else scaled by 1/(1-rate).

    ``found`` and ``whole`` have the shape (rows, columns), and ``whole`` no zeros. Rows and columns are dropped no more
    often than elements are: dropout is not by row or column.
    https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html
    """
    after = f" {name}" if name else ""
    gone = (found == 0).double()
    kept = found[found != 0].double() * (1 - rate) / whole.expand_as(found)[found != 0].double()
    yield at_most(f"share dropped off{after}", abs(float(gone.mean()) - rate), bound(gone.numel()))
    yield at_most(f"kept elements off{after}", float((kept - 1).abs().max()) if len(kept) else 0.0, SAME)
    for axis in (0, 1):
        lines = gone.mean(axis)
        shared = bound(gone.shape[axis], FALSE_ALARM / len(lines))  # by the union bound
        yield at_most(f"share dropped in one line off{after}", float((lines - rate).abs().max()), shared)


def differing(one: Any, other: Any, rate: float, name: str) -> Check:
    """Compare two masks with independent ones, which differ in 2p(1-p) of the elements."""
    share = float(((one == 0) != (other == 0)).double().mean())
    return at_most(name, abs(share - 2 * rate * (1 - rate)), bound(one.numel()))
