"""Finds the first red candidate in an ordered list by bisection, and steps over untestable ones."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from matrix.bisect.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matrix.bisect.state import BatchTest


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """The last green and the first red index, and the untestable indices between them."""

    last_good: int
    first_bad: int
    untestable: tuple[int, ...] = ()

    @property
    def exact(self) -> bool:
        return not self.untestable


def find_boundary(
    count: int, test: BatchTest[int], *, width: int = 1, weights: Sequence[float] | None = None
) -> Boundary:
    """Bisect the indices from 0, which is green, to ``count - 1``, which is red.

    If states do not change only once, the result is one of the changes.

    Args:
        count: the number of candidates, both ends included; at least 2.
        test: returns the state of some indices; never called with an end.
        width: the number of candidates that are tested at once.
        weights: how likely each index is the first red one; equal by default.
    """
    prior = list(weights) if weights is not None else [1.0] * count
    low, high = 0, count - 1
    untestable: set[int] = set()
    fruitless = 0  # rounds since the interval last shrank
    while True:
        open_indices = [each for each in range(low + 1, high) if each not in untestable]
        if not open_indices:
            between = tuple(each for each in range(low + 1, high) if each in untestable)
            return Boundary(last_good=low, first_bad=high, untestable=between)
        chosen = split_points(open_indices, high, prior, width=width, fruitless=fruitless)
        states = test(chosen)
        untestable |= {each for each in chosen if states[each] is State.UNTESTABLE}
        before = low, high
        low, high = narrowed(low, high, states)
        fruitless = fruitless + 1 if (low, high) == before else 0


def narrowed(low: int, high: int, states: Mapping[int, State]) -> tuple[int, int]:
    """The interval before the first red index among the tested ones."""
    first_red = min((each for each, state in states.items() if state is State.RED), default=high)
    last_green = max((each for each, state in states.items() if state is State.GREEN and each < first_red), default=low)
    return last_green, first_red


def split_points(
    open_indices: Sequence[int], high: int, prior: Sequence[float], *, width: int, fruitless: int
) -> list[int]:
    """The indices that split what is open into parts of equal weight.

    After a round without a result, the split moves elsewhere, because neighbours of an untestable candidate often are
    untestable as well.
    """
    weights = [prior[each] for each in (*open_indices, high)]  # each is the weight of being the first red one
    sums = list(accumulate(weights))
    shift = van_der_corput(fruitless + 1) - 0.5
    fractions = [(part / (width + 1) + shift) % 1.0 for part in range(1, width + 1)]
    last = len(open_indices) - 1
    return sorted({open_indices[nearest(sums, fraction * sums[-1], last)] for fraction in fractions})


def nearest(sums: Sequence[float], target: float, last: int) -> int:
    """The position whose cumulative weight is closest to the target."""
    position = min(bisect_left(sums, target), last)
    if position and target - sums[position - 1] <= sums[position] - target:
        return position - 1
    return position


def van_der_corput(number: int) -> float:
    """The sequence 1/2, 1/4, 3/4, 1/8, ..., which covers the unit interval evenly."""
    value, base = 0.0, 0.5
    while number:
        number, bit = divmod(number, 2)
        value += bit * base
        base /= 2
    return value
