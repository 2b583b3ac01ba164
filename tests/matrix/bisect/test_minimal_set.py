"""The search for a minimal set of changes finds single changes, pairs, and changes that need companions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from matrix.bisect.minimal_set import MinimalSetSearch, ddmin
from matrix.bisect.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COUNT = 40


@dataclass
class Culprits:
    """Sets are red if they contain all of ``red``, and untestable if they lack a companion of a change."""

    red: frozenset[int]
    companions: Mapping[int, int] = field(default_factory=dict)
    tests: int = 0

    def __call__(self, sets: Sequence[frozenset[int]]) -> dict[frozenset[int], State]:
        self.tests += len(sets)
        return {each: self.state(each) for each in sets}

    def state(self, changes: frozenset[int]) -> State:
        if any(each in changes and other not in changes for each, other in self.companions.items()):
            return State.UNTESTABLE
        return State.RED if self.red <= changes else State.GREEN


@pytest.mark.parametrize("guilty", range(COUNT))
def test_a_single_change_is_found_in_seven_tests(guilty: int) -> None:
    test = Culprits(frozenset({guilty}))
    assert MinimalSetSearch(count=COUNT, test=test).run() == {guilty}
    assert test.tests <= 7


@pytest.mark.parametrize("seed", range(50))
def test_a_pair_is_found_in_fifteen_tests(seed: int) -> None:
    guilty = frozenset(random.Random(seed).sample(range(COUNT), 2))  # noqa: S311 - a seed makes the test repeatable
    test = Culprits(guilty)
    search = MinimalSetSearch(count=COUNT, test=test)
    assert search.run() == guilty
    assert search.culprits(guilty) == (guilty, guilty)
    assert test.tests <= 15


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_companion_is_told_from_the_culprit(seed: int, width: int) -> None:
    guilty, companion = random.Random(seed).sample(range(COUNT), 2)  # noqa: S311 - a seed makes the test repeatable
    search = MinimalSetSearch(count=COUNT, test=Culprits(frozenset({guilty}), {guilty: companion}), width=width)
    found = search.run()
    assert found == {guilty, companion}
    assert search.culprits(found) == (found, frozenset({guilty}))


def test_required_changes_move_along_without_being_tested_alone() -> None:
    def closure(changes: frozenset[int]) -> frozenset[int]:
        return changes | {0} if changes & {3, 5} else changes

    test = Culprits(frozenset({5}), {3: 0, 5: 0})
    assert MinimalSetSearch(count=8, test=test, closure=closure).run() == {5}
    assert test.tests <= 4


def test_no_set_is_tested_twice() -> None:
    seen: list[frozenset[int]] = []
    test = Culprits(frozenset({3, 17, 30}), {17: 4})

    def recorded(sets: Sequence[frozenset[int]]) -> dict[frozenset[int], State]:
        seen.extend(sets)
        return test(sets)

    assert MinimalSetSearch(count=COUNT, test=recorded).run() == {3, 4, 17, 30}
    assert len(seen) == len({*seen})


@pytest.mark.parametrize("seed", range(30))
def test_ddmin_leaves_nothing_that_can_be_left_out(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - a seed makes the test repeatable
    guilty = frozenset(dice.sample(range(20), dice.randrange(1, 5)))
    assert ddmin(range(20), Culprits(guilty)) == guilty


@pytest.mark.parametrize("seed", range(50))
def test_a_change_that_flakes_is_found_although_steps_are_green_by_chance(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - a seed makes the test repeatable
    guilty = frozenset({draw.randrange(COUNT)})
    sure = Culprits(guilty)

    def now_and_then(sets: Sequence[frozenset[int]]) -> dict[frozenset[int], State]:
        return {each: state if draw.random() < 0.8 else State.GREEN for each, state in sure(sets).items()}

    search = MinimalSetSearch(count=COUNT, test=now_and_then, confirm=sure)
    assert search.culprits(search.run()) == (guilty, guilty)
