"""A failure that turns out to flake during the search is searched again from the packages on."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from matrix.bisect.answering import found_culprits
from matrix.bisect.confidence import FailureRate
from matrix.bisect.ends import FlakyDifferenceError

STEADY, FLAKY = FailureRate(red=3, runs=3), FailureRate(red=5, runs=6)


@dataclass
class FakeSearch:
    """Finds the packages of each search in order; the failure flakes from some search on, which may be refused."""

    packages: list[int]
    rate: FailureRate = STEADY
    flakes_after: int = 99
    refused: tuple[int, ...] = ()
    searches: list[int] = field(default_factory=list)

    def guilty_groups(self) -> Any:
        self.searches.append(self.packages[len(self.searches)])
        return SimpleNamespace(culprits={self.searches[-1]})

    def culprit(self, group: int, _: Any) -> str:
        if len(self.searches) >= self.flakes_after:
            self.rate = FLAKY
        if len(self.searches) in self.refused:
            raise FlakyDifferenceError("it was green, then red")
        return f"package {group}"


def found(search: FakeSearch) -> tuple[str, ...]:
    bisection: Any = search
    culprits: Any = found_culprits(bisection)[1]
    return tuple(culprits)


@pytest.mark.parametrize("rate", [STEADY, FLAKY])
def test_a_failure_whose_rate_is_known_is_searched_once(rate: FailureRate) -> None:
    search = FakeSearch([1], rate=rate)
    assert (found(search), search.searches) == (("package 1",), [1])


@pytest.mark.parametrize("refused", [(), (1,)])
def test_a_failure_that_flakes_on_the_way_is_searched_again(refused: tuple[int, ...]) -> None:
    search = FakeSearch([1, 2], flakes_after=1, refused=refused)
    assert (found(search), search.searches) == (("package 2",), [1, 2])


def test_a_second_contradiction_is_refused() -> None:
    with pytest.raises(FlakyDifferenceError):
        found(FakeSearch([1, 2, 3], flakes_after=1, refused=(1, 2)))
