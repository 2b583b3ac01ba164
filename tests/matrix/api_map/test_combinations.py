"""Pairs of releases, what users install beside them, and combinations that are imported again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from matrix.api_map.measured.combinations import (
    again,
    filled,
    minor_releases,
    of_bases,
    pairs,
)
from matrix.api_map.measured.import_results import MeasuredImports
from matrix.api_map.query import ApiMap


@pytest.fixture(scope="module")
def packaged() -> ApiMap:
    return ApiMap()


def test_each_minor_release_of_a_partner_is_paired_with_each_of_transformers(packaged: ApiMap) -> None:
    bases = len(minor_releases(packaged.releases["transformers"]))
    found = [each for each in pairs(packaged) if each[1] == "peft"]
    assert len(found) == len(set(found)) == bases * len(minor_releases(packaged.releases["peft"]))


def test_the_others_are_the_newest_of_the_day_that_fit(packaged: ApiMap) -> None:
    found = filled({"transformers": "4.46.3", "peft": "0.14.0"}, packaged)
    assert (found["tokenizers"], found["huggingface_hub"], found["accelerate"]) == ("0.20.3", "0.26.5", "1.2.0")


def test_pairs_of_some_releases_of_transformers_are_chosen(packaged: ApiMap) -> None:
    found = of_bases(pairs(packaged), ">=5.0")
    assert {each[0] for each in found} == {each for each, _, _ in pairs(packaged) if each >= "5"}


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
