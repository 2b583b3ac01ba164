"""What moving a package changes in its API, in words."""

from __future__ import annotations

import pytest

from matrix.api_map.query import ApiMap
from matrix.versions.moved_packages import MovedPackage
from reports.answers.api import release_changes

TRL = MovedPackage(name="trl", old="0.15.2", new="0.16.0")


@pytest.fixture(scope="module")
def api() -> ApiMap:
    return ApiMap()


def test_a_sentence_has_counts_and_examples(api: ApiMap) -> None:
    found = release_changes.sentence(api, TRL)
    assert found.startswith("API of trl 0.15.2 -> 0.16.0: ")
    assert "changed defaults, e.g. " in found
    assert found.endswith("; all: `ftmatrix map changes trl 0.15.2 0.16.0`")


def test_releases_that_the_map_lacks_have_no_sentence(api: ApiMap) -> None:
    assert release_changes.sentence(api, MovedPackage(name="trl", old="0.15.2", new="99.0")) == ""
    assert release_changes.sentence(api, MovedPackage(name="trl", old="", new="0.16.0")) == ""


def test_a_job_relies_on_the_defaults_that_it_does_not_state(api: ApiMap) -> None:
    words = "SFTConfig(max_seq_length): 1024 -> None"
    assert words in list(release_changes.defaults_of_job(api, TRL, trainer="SFTTrainer", stated=()))
    assert words not in list(release_changes.defaults_of_job(api, TRL, trainer="SFTTrainer", stated={"max_seq_length"}))
    assert words not in list(release_changes.defaults_of_job(api, TRL, trainer="DPOTrainer", stated=()))


def test_examples_begin_with_what_the_failure_mentions() -> None:
    paths = ["trl.AlignPropTrainer", "trl.GRPOTrainer(tokenizer)", "trl.KTOTrainer"]
    first = release_changes.mentioned_first(paths, "ImportError: cannot import name 'KTOTrainer' from 'trl'")
    assert first == ["trl.KTOTrainer", "trl.AlignPropTrainer", "trl.GRPOTrainer(tokenizer)"]
    assert release_changes.mentioned_first(paths, "unexpected keyword argument 'tokenizer'")[0] == paths[1]
    assert release_changes.mentioned_first(paths, "") == paths
