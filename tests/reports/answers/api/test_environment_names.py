"""What the map says of environments: sets that were measured import, and a known bad pair does not."""

from __future__ import annotations

import pytest

from matrix.api_map.query import ApiMap
from matrix.versions import sets
from reports.answers.api.environment_names import environment_names

PLAIN = [each for each in sets.load() if "+" not in each.key]


@pytest.fixture(scope="module")
def api() -> ApiMap:
    return ApiMap()


@pytest.mark.parametrize("key", [each.key for each in PLAIN])
def test_every_dated_set_imports_as_its_cells_show(api: ApiMap, key: str) -> None:
    (pins,) = [each.pins for each in PLAIN if each.key == key]
    assert environment_names(pins, api).broken == ()


def test_a_pair_that_cannot_be_imported_is_one_problem(api: ApiMap) -> None:
    versions = {"transformers": "5.1.0", "peft": "0.17.0", "trl": "0.20.0", "accelerate": "1.2.0"}
    (broken,) = environment_names(versions, api).broken
    assert broken.missing.target == "transformers.HybridCache"
    assert "transformers 5.1.0 has no `transformers.HybridCache`, which peft.peft_model of peft 0.17.0 uses" in (
        broken.sentence(versions)
    )


def test_unknown_versions_say_nothing(api: ApiMap) -> None:
    assert environment_names({"transformers": "99.0", "peft": "99.0"}, api).broken == ()


def test_a_name_that_a_module_has_only_with_a_newer_torch_is_a_problem_of_both(api: ApiMap) -> None:
    versions = {"torch": "2.5.1", "transformers": "5.20.2", "trl": "0.11.4", "accelerate": "1.2.0"}
    (broken,) = environment_names(versions, api).broken
    assert broken.pair == {"transformers", "torch"}
    assert broken.sentence(versions) == (
        "importing from trl fails: transformers.integrations.accelerate of transformers 5.20.2 uses `nn`, "
        "which it lacks with torch 2.5.1"
    )
    (other,) = environment_names(versions | {"torch": "2.15.0"}, api).broken
    assert other.missing.kind == "import"
