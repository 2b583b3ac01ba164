"""Combinations that the import matrix imports for open pairs."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from matrix.api_map.measured.combinations import always_newest, of_bases
from matrix.api_map.measured.import_results import MeasuredImports
from matrix.api_map.measured.plan import Planner, open_pairs
from matrix.api_map.query import ApiMap

if TYPE_CHECKING:
    from matrix.api_map.measured.combinations import Pair, PlannedCombination

FIRST = 12
OPEN = "4.46.3"  # the release of transformers whose pairs are open


@pytest.fixture(scope="module")
def packaged() -> ApiMap:
    return ApiMap()


@pytest.fixture(scope="module")
def every(packaged: ApiMap) -> set[Pair]:
    return open_pairs(packaged, [])


def planned(api: ApiMap, left: set[Pair] | list[Pair], **options: object) -> list[PlannedCombination]:
    return list(islice(Planner(api, left, **options).planned(("peft",), variants=5), FIRST))  # type: ignore[arg-type]


def result(error: str, **versions: str) -> MeasuredImports:
    return MeasuredImports(
        versions={"transformers": OPEN, "peft": "0.14.0", **versions},
        errors={"import transformers": "", "import peft": error},
        python="3.11.7",
        torch="2.5.1",
        measured=datetime(2026, 11, 26, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    "error", ["", "ImportError: cannot import name 'a' from 'transformers' [peft.utils]"], ids=["imported", "failed"]
)
def test_a_pair_is_open_until_it_was_imported_or_failed_on_each_other(packaged: ApiMap, error: str) -> None:
    assert (OPEN, "peft", "0.14.0") not in open_pairs(packaged, [result(error)])


def test_a_pair_whose_import_a_third_package_broke_is_open(packaged: ApiMap) -> None:
    error = "ImportError: cannot import name 'a' from 'accelerate' [peft.utils]"
    assert (OPEN, "peft", "0.14.0") in open_pairs(packaged, [result(error)])


def test_a_patch_of_the_same_minor_release_measures_a_pair(packaged: ApiMap) -> None:
    found = open_pairs(packaged, [result("", transformers="4.46.0")])
    assert (OPEN, "peft", "0.14.0") not in found


def test_a_combination_has_no_pair_of_an_earlier_one(packaged: ApiMap, every: set[Pair]) -> None:
    found = planned(packaged, every)
    assert len({frozenset(each.pairs) for each in found}) == FIRST
    peft = [(each.versions["transformers"], each.versions["peft"]) for each in found]
    assert len(set(peft)) == FIRST


def test_the_other_packages_are_releases_whose_pairs_are_open(packaged: ApiMap) -> None:
    left = [(OPEN, "peft", "0.14.0"), (OPEN, "accelerate", "0.34.2"), (OPEN, "trl", "0.9.6"), (OPEN, "trl", "0.8.6")]
    (found,) = planned(packaged, left)
    assert set(left) <= found.pairs
    assert sorted(found.variants) == ["0.8.6", "0.9.6"]


def test_a_partner_without_an_open_pair_does_not_bound_the_open_ones(packaged: ApiMap) -> None:
    left = [("5.5.4", "peft", "0.18.1"), ("5.5.4", "accelerate", "0.22.0")]  # the newest trl needs accelerate 1.4
    (found,) = planned(packaged, left)
    assert set(left) <= found.pairs


def test_a_combination_meets_all_requirements(packaged: ApiMap, every: set[Pair]) -> None:
    for each in planned(packaged, every):
        possible = Planner(packaged, []).compatibility.possible(each.versions, each.versions)
        assert all(possible.values())


def test_a_pair_that_requirements_exclude_is_not_planned(packaged: ApiMap) -> None:
    trl = ("4.40.2", "trl", "1.0.0")  # trl 1.0 requires transformers 4.56.2
    assert not list(Planner(packaged, [trl]).planned(("trl",), variants=5))


def test_a_release_without_a_wheel_for_the_interpreter_is_not_planned(packaged: ApiMap, every: set[Pair]) -> None:
    assert not planned(packaged, every, has_wheel=lambda package, _: package != "transformers")


def test_a_package_from_before_the_map_is_left_to_the_environment(packaged: ApiMap) -> None:
    left = [("4.31.0", "peft", "0.6.2")]
    (found,) = planned(packaged, left, libraries={"tokenizers": "0.13.3"})
    assert "tokenizers" not in found.versions
    assert not planned(packaged, left, libraries={"tokenizers": "0.21.0"})
    assert not planned(packaged, left)


@pytest.mark.parametrize(("torch", "releases"), [("2.5.1", 4), ("2.6.0", 1)])
def test_old_releases_of_bitsandbytes_are_packed_where_triton_has_what_they_need(
    packaged: ApiMap, every: set[Pair], torch: str, releases: int
) -> None:
    used = {each.versions["bitsandbytes"] for each in planned(packaged, every, newest=always_newest(torch))}
    assert len(used) >= releases
    assert releases > 1 or used == {packaged.versions("bitsandbytes")[-1]}


def test_combinations_are_made_for_chosen_releases_of_transformers(packaged: ApiMap, every: set[Pair]) -> None:
    found = planned(packaged, of_bases(every, ">=5.0"))
    assert all(each.versions["transformers"] >= "5" for each in found)
