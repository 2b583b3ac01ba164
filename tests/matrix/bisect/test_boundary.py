"""The bisection of an ordered list finds the change, with few tests, and steps over untestable candidates."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from matrix.bisect.boundary import find_boundary
from matrix.bisect.state import State

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass
class Line:
    """Candidates of which all from ``first`` on are red; records those that were tested."""

    first: int
    untestable: Collection[int] = ()
    tested: list[int] = field(default_factory=list)

    def __call__(self, indices: Sequence[int]) -> dict[int, State]:
        self.tested += indices
        return {each: self.state(each) for each in indices}

    def state(self, index: int) -> State:
        if index in self.untestable:
            return State.UNTESTABLE
        return State.RED if index >= self.first else State.GREEN


@pytest.mark.parametrize("count", [2, 3, 10, 64, 100])
def test_every_first_red_candidate_is_found_in_about_log2_tests(count: int) -> None:
    for first in range(1, count):
        line = Line(first)
        found = find_boundary(count, line)
        assert (found.last_good, found.first_bad) == (first - 1, first)
        assert len(line.tested) <= math.ceil(math.log2(count))


def test_ends_are_not_tested_and_nothing_is_tested_twice() -> None:
    line = Line(7)
    find_boundary(20, line)
    assert not {0, 19} & {*line.tested}
    assert len({*line.tested}) == len(line.tested)


@pytest.mark.parametrize("seed", range(50))
def test_the_range_around_untestable_candidates_is_the_smallest(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - a seed makes the test repeatable
    first = dice.randrange(1, 40)
    untestable = {each for each in range(1, 39) if dice.random() < 0.3}
    found = find_boundary(40, Line(first, untestable))
    good = [each for each in range(first) if each not in untestable]
    bad = [each for each in range(first, 40) if each not in untestable]
    assert (found.last_good, found.first_bad) == (good[-1], bad[0])
    assert set(found.untestable) == set(range(good[-1] + 1, bad[0]))


def test_a_block_of_untestable_candidates_away_from_the_change_costs_few_tests() -> None:
    line = Line(10, range(30, 70))
    assert find_boundary(100, line).first_bad == 10
    assert len(line.tested) <= 10


def test_three_candidates_at_once_need_half_the_rounds() -> None:
    rounds: list[Sequence[int]] = []
    line = Line(37)

    def counted(indices: Sequence[int]) -> dict[int, State]:
        rounds.append(indices)
        return line(indices)

    assert find_boundary(64, counted, width=3).first_bad == 37
    assert len(rounds) <= 3


def test_a_likely_candidate_is_found_sooner() -> None:
    line = Line(50)
    weights = [1.0] * 100
    weights[50] = 1000.0
    assert find_boundary(100, line, weights=weights).first_bad == 50
    assert len(line.tested) <= 2
