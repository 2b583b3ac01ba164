"""Finds a smallest set of changes that turns a green configuration red.

Bisection over growing sets finds each necessary change (Junker, QuickXplain, 2004), which takes about log2(n) tests per
change instead of the 2 log2(n) or more of delta debugging. Delta debugging (Zeller and Hildebrandt, Simplifying and
Isolating Failure-Inducing Input, 2002) then reduces what is left, so that no change of the result can be left out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.bisect.boundary import find_boundary
from matrix.bisect.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.bisect.state import BatchTest

    Changes = frozenset[int]


@dataclass(kw_only=True)
class MinimalSetSearch:
    """Searches among the changes 0 to ``count - 1``; none of them is green, all of them together are red.

    Args:
        count: the number of changes. In this order, a change comes after those that it requires.
        test: returns the state of some sets of changes; a red set may be green by chance, but no green one is red.
        confirm: returns the state of some sets more surely, by default as ``test`` does.
        closure: adds the changes that some changes require.
        width: the number of sets that are tested at once.
        weights: how likely each change is necessary; equal by default.
    """

    count: int
    test: BatchTest[Changes]
    confirm: BatchTest[Changes] | None = None
    closure: Callable[[Changes], Changes] = lambda changes: changes
    width: int = 1
    weights: Sequence[float] | None = None
    known: dict[Changes, State] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known |= {frozenset(): State.GREEN, frozenset(range(self.count)): State.RED}

    def run(self) -> Changes:
        """The changes of a red set; without any one of them, the set is not red."""
        needed: Changes = frozenset()
        pool = list(range(self.count))
        while pool and self.state(needed) is not State.RED:
            found, pool = self.next_needed(needed, pool)
            needed |= found
        likely = sorted(needed, key=lambda each: (-self.prior[each], each))  # the parts of ddmin are consecutive
        return ddmin(likely, self.states, width=self.width)

    def culprits(self, red: Changes) -> tuple[Changes, Changes]:
        """A minimal red set, and those of its changes without which it is green.

        Without one of the others, it is untestable: they let the set run, but do not break it. A change without which
        the set is red after all, although a test of the search was green, is left out.

        Args:
            red: a red set, which ``run`` found.
        """
        while len(red) > 1:
            states = self.confirmed([red - {each} for each in sorted(red)])
            smaller = next((each for each, state in states.items() if state is State.RED), None)
            if smaller is None:
                return red, frozenset(each for each in red if states[red - {each}] is State.GREEN)
            red = smaller
        return red, red

    @property
    def prior(self) -> Sequence[float]:
        return self.weights or [1.0] * self.count

    def next_needed(self, needed: Changes, pool: Sequence[int]) -> tuple[Changes, list[int]]:
        """The change of the pool that turns the growing set red, or several that cannot be separated; the rest."""
        growing = [needed | frozenset(pool[:size]) for size in range(len(pool) + 1)]

        def of_sizes(sizes: Sequence[int]) -> Mapping[int, State]:
            states = self.states([growing[size] for size in sizes])
            return {size: states[growing[size]] for size in sizes}

        boundary = find_boundary(
            len(growing), of_sizes, width=self.width, weights=[0.0, *(self.prior[each] for each in pool)]
        )
        found = pool[boundary.last_good : boundary.first_bad]
        return frozenset(found), list(pool[: boundary.last_good])

    def state(self, changes: Changes) -> State:
        return self.states([changes])[changes]

    def confirmed(self, candidates: Sequence[Changes]) -> dict[Changes, State]:
        """The state of each set, closed under what its changes require, as sure as an answer must be."""
        if self.confirm is None:
            return self.states(candidates)
        closed = {each: self.closure(each) for each in candidates}
        states = self.confirm(list(dict.fromkeys(closed.values())))
        return {each: states[closure] for each, closure in closed.items()}

    def states(self, candidates: Sequence[Changes]) -> dict[Changes, State]:
        """The state of each set, closed under what its changes require; each set is tested once."""
        closed = {each: self.closure(each) for each in candidates}
        unknown = [each for each in dict.fromkeys(closed.values()) if each not in self.known]
        if unknown:
            self.known.update(self.test(unknown))
        return {each: self.known[closure] for each, closure in closed.items()}


def ddmin(changes: Sequence[int], test: BatchTest[Changes], *, width: int = 1) -> Changes:
    """Reduce a red set until no single change can be left out.

    Args:
        changes: a red set.
        test: returns the state of some sets; untestable ones are never chosen.
        width: the number of sets that are tested at once.
    """
    current, parts = list(changes), 2
    while len(current) > 1:
        subsets = [frozenset(each) for each in split(current, parts)]
        complements = [frozenset(current) - each for each in subsets] if parts > 2 else []  # noqa: PLR2004 - see ddmin
        smaller = first_red([*subsets, *complements], test, width)
        if smaller is not None:
            parts = max(parts - 1, 2) if smaller in complements else 2
            current = [each for each in current if each in smaller]
        elif parts >= len(current):
            break
        else:
            parts = min(2 * parts, len(current))
    return frozenset(current)


def first_red(candidates: Sequence[Changes], test: BatchTest[Changes], width: int) -> Changes | None:
    for start in range(0, len(candidates), width):
        batch = candidates[start : start + width]
        states = test(batch)
        red = next((each for each in batch if states[each] is State.RED), None)
        if red is not None:
            return red
    return None


def split(items: Sequence[int], parts: int) -> list[Sequence[int]]:
    """Consecutive parts of nearly equal length."""
    bounds = [len(items) * number // parts for number in range(parts + 1)]
    return [items[start:end] for start, end in itertools.pairwise(bounds) if start < end]
