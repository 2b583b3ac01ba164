"""Combinations that the import matrix imports."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pytest

from matrix.api_map.measured.combinations import filled, is_installable, minor_releases, pairs, planned
from matrix.api_map.query import ApiMap

if TYPE_CHECKING:
    from matrix.api_map.measured.combinations import PlannedCombination

FIRST = 12


@pytest.fixture(scope="module")
def packaged() -> ApiMap:
    return ApiMap()


@pytest.fixture(scope="module")
def first(packaged: ApiMap) -> list[PlannedCombination]:
    return list(islice(planned(packaged, [], variants=5), FIRST))


def test_each_minor_release_of_a_partner_is_paired_with_each_of_transformers(packaged: ApiMap) -> None:
    bases = len(minor_releases(packaged.releases["transformers"]))
    found = [each for each in pairs(packaged) if each[1] == "peft"]
    assert len(found) == len(set(found)) == bases * len(minor_releases(packaged.releases["peft"]))


def test_a_combination_measures_no_pair_again(first: list[PlannedCombination]) -> None:
    made_for = {frozenset(each.pairs) for each in first}
    assert len(made_for) == FIRST
    further = [(each.versions["transformers"], version) for each in first for version in each.variants[1:]]
    assert len(further) == len(set(further))


def test_a_measured_combination_is_not_planned_again(packaged: ApiMap, first: list[PlannedCombination]) -> None:
    again = list(islice(planned(packaged, [each.versions for each in first], variants=0), FIRST))
    assert not {frozenset(each.versions.items()) for each in first} & {frozenset(e.versions.items()) for e in again}


def test_all_requirements_of_a_planned_transformers_are_met(packaged: ApiMap, first: list[PlannedCombination]) -> None:
    assert all(is_installable(each.versions, packaged) for each in first)


def test_a_release_without_a_wheel_for_the_interpreter_is_not_planned(packaged: ApiMap) -> None:
    found = planned(packaged, [], variants=0, has_wheel=lambda package, _: package != "transformers")
    assert next(found, None) is None


def test_a_pair_whose_release_is_left_takes_the_place_of_the_newest(packaged: ApiMap) -> None:
    pair = {"transformers": "4.46.3", "peft": "0.14.0"}
    newest = filled(pair, packaged)["accelerate"]
    left = [("4.46.3", "accelerate", "0.34.2")]
    assert newest != "0.34.2"
    assert filled(pair, packaged, left)["accelerate"] == "0.34.2"
