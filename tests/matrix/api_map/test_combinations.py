"""Combinations that the import matrix imports."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from matrix.api_map.measured.combinations import (
    again,
    always_newest,
    filled,
    is_installable,
    minor_releases,
    pairs,
    planned,
)
from matrix.api_map.measured.import_results import MeasuredImports
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


def test_a_transformers_without_a_release_of_tokenizers_that_it_admits_is_not_planned(packaged: ApiMap) -> None:
    assert not is_installable({"transformers": "4.31.0", "huggingface_hub": "0.16.4"}, packaged)


def test_a_release_without_a_wheel_for_the_interpreter_is_not_planned(packaged: ApiMap) -> None:
    found = planned(packaged, [], variants=0, has_wheel=lambda package, _: package != "transformers")
    assert next(found, None) is None


def test_a_pair_whose_release_is_left_takes_the_place_of_the_newest(packaged: ApiMap) -> None:
    pair = {"transformers": "4.46.3", "peft": "0.14.0"}
    newest = filled(pair, packaged)["accelerate"]
    left = [("4.46.3", "accelerate", "0.34.2")]
    assert newest != "0.34.2"
    assert filled(pair, packaged, left)["accelerate"] == "0.34.2"


def test_combinations_are_made_for_the_pairs_of_one_partner(packaged: ApiMap) -> None:
    found = list(islice(planned(packaged, [], variants=0, partners=("peft",)), FIRST))
    assert len({(each.versions["transformers"], each.versions["peft"]) for each in found}) == FIRST


@pytest.mark.parametrize(("torch", "releases"), [("2.5.1", 6), ("2.6.0", 1)])
def test_old_releases_of_bitsandbytes_fill_a_combination_where_triton_has_what_they_need(
    packaged: ApiMap, torch: str, releases: int
) -> None:
    found = planned(packaged, [], variants=0, partners=("peft",), newest=always_newest(torch))
    used = {each.versions["bitsandbytes"] for each in islice(found, FIRST)}
    assert len(used) >= releases
    assert releases > 1 or used == {packaged.versions("bitsandbytes")[-1]}


def measured(trl: str, **others: str) -> MeasuredImports:
    versions = {"transformers": "4.46.3", "trl": trl, **others}
    return MeasuredImports(
        versions=versions, errors={}, python="3.11.7", torch="2.5.1", measured=datetime(2026, 11, 25, tzinfo=UTC)
    )


def test_results_that_differ_in_trl_are_measured_again_as_one_combination() -> None:
    results = [measured("0.9.6", peft="0.14.0"), measured("0.9.6", peft="0.15.0"), measured("0.8.6", peft="0.14.0")]
    found = again(results, [], first=lambda each: each.versions["trl"] == "0.8.6")
    assert [(each.versions["peft"], each.variants) for each in found] == [
        ("0.14.0", ("0.9.6", "0.8.6")),
        ("0.15.0", ("0.9.6",)),
    ]


def test_results_with_a_wrong_prediction_are_measured_again_first_and_measured_ones_not() -> None:
    results = [measured("0.9.6", peft=f"0.{minor}.0") for minor in range(10)]
    wrong, done = results[7], results[3].versions
    found = again(results, [done], first=lambda each: each is wrong)
    assert found[0].versions == wrong.versions
    assert {each.versions["peft"] for each in found} == {each.versions["peft"] for each in results} - {done["peft"]}
