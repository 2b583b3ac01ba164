"""Answers for releases of two packages, from the packaged map and import matrix."""

from __future__ import annotations

import pytest

from matrix.api_map.measured import import_results
from matrix.api_map.query import ApiMap
from reports.answers.pairs.pair_answers import (
    READ,
    PairStatus,
    newest_releases,
    pair_answer,
    pair_answers,
    without_release,
)
from reports.answers.support.requirements import requirement


@pytest.fixture(scope="module")
def api() -> ApiMap:
    return ApiMap()


def test_a_pair_that_was_imported_together_names_the_measurement(api: ApiMap) -> None:
    results = list(import_results.load())
    works = next(each for each in results if each.imports("peft") and each.imports("transformers"))
    found = pair_answer({name: works.versions[name] for name in ("peft", "transformers")}, api, results)
    assert found.proof.count("measured with Python") == 1
    assert found.status in {PairStatus.IMPORTS, PairStatus.AT_USE}


@pytest.mark.parametrize("measured", [True, False])
def test_a_pair_that_breaks_at_import_names_the_missing_name(api: ApiMap, *, measured: bool) -> None:
    word = "HybridCache"
    results = [each for each in import_results.load() if word in each.errors.get("import peft", "")]
    versions = {name: results[0].versions[name] for name in ("peft", "transformers")}
    found = pair_answer(versions, api, results if measured else [])
    assert found.status is PairStatus.AT_IMPORT
    assert f"transformers {versions['transformers']} has no `transformers.{word}`" in found.because
    assert found.proof.startswith("measured with Python" if measured else READ)


def test_a_failure_of_another_library_is_not_blamed_on_the_pair(api: ApiMap) -> None:
    results = [each for each in import_results.load() if "triton.ops" in each.errors.get("import peft", "")]
    versions = {name: results[0].versions[name] for name in ("peft", "transformers")}
    assert pair_answer(versions, api, results).status is not PairStatus.AT_IMPORT


def test_a_pair_that_misses_a_name_in_a_function_breaks_when_it_is_used(api: ApiMap) -> None:
    found = pair_answer({"trl": "0.12.2", "transformers": "4.40.2"}, api, [])
    assert found.status is PairStatus.AT_USE
    assert "trl.trainer.sft_trainer uses `transformers.Trainer.__init__(processing_class)`" in found.because


def test_a_pair_without_measurement_and_without_a_missing_name_is_not_measured(api: ApiMap) -> None:
    found = pair_answer({"peft": "0.17.1", "transformers": "4.46.3"}, api, [])
    assert (found.status, found.proof) == (PairStatus.NOT_MEASURED, READ)


def test_a_requirement_that_is_not_met_is_named(api: ApiMap) -> None:
    found = pair_answer({"trl": "0.12.0", "transformers": "4.40.0"}, api, [])
    assert found.unmet == ("trl 0.12.0 requires transformers>=4.46.0",)


def test_a_series_stands_for_its_newest_release(api: ApiMap) -> None:
    have = [requirement(each) for each in ("peft 0.17", "transformers>=4.46,<4.47", "trl==99.0")]
    assert newest_releases(have, api) == {"peft": "0.17.1", "transformers": "4.46.3"}


def test_each_two_of_three_packages_are_a_pair(api: ApiMap) -> None:
    have = [requirement(each) for each in ("peft 0.17", "transformers 4.46", "trl 0.12")]
    assert [tuple(each.versions) for each in pair_answers(have, api, [])] == [
        ("peft", "transformers"),
        ("peft", "trl"),
        ("transformers", "trl"),
    ]


@pytest.mark.parametrize(
    ("have", "sentence"),
    [
        ("peft==99.0", "peft==99.0.*: not in the map of the API, which has 0.4.0 to "),
        ("transformers==4.46.0", "transformers==4.46.0: 4.46.0 is yanked or cannot be read; name another version"),
    ],
)
def test_a_version_that_cannot_be_answered_is_one_sentence(api: ApiMap, have: str, sentence: str) -> None:
    (found,) = without_release([requirement(have), requirement("trl==0.12.0")], api)
    assert found.startswith(sentence)
