"""Methods of a script that accept less than those that they replace, by the packaged map."""

from __future__ import annotations

import pytest

from matrix.api_map.query import ApiMap
from reports.answers.check.overrides import NarrowOverride, narrower_overrides
from reports.answers.check.releases_with import ReleaseAnswers
from reports.answers.check.uses import Override


@pytest.fixture(scope="module")
def releases() -> ReleaseAnswers:
    return ReleaseAnswers(ApiMap())


def narrow(releases: ReleaseAnswers, method: str, *parameters: str) -> list[NarrowOverride]:
    path = f"transformers.Trainer.{method}"
    override = Override(path=path, own_name=f"Mine.{method}", parameters=parameters, place="train.py:3")
    return list(narrower_overrides([override], releases))


def test_a_parameter_that_a_release_added_is_listed_with_its_releases(releases: ReleaseAnswers) -> None:
    (found,) = narrow(releases, "compute_loss", "model", "inputs", "return_outputs")
    assert (found.parameter, found.ranges[0][0], found.is_passed) == ("num_items_in_batch", "4.46.0", True)


def test_a_method_that_had_no_parameters_before_is_compared_too(releases: ReleaseAnswers) -> None:
    (found,) = narrow(releases, "_get_train_sampler")
    assert (found.parameter, found.ranges[0][0]) == ("train_dataset", "4.52.0")


def test_a_method_that_accepts_the_new_parameter_is_not_listed(releases: ReleaseAnswers) -> None:
    assert narrow(releases, "_get_train_sampler", "train_dataset") == []


def test_a_method_of_the_script_alone_is_not_listed(releases: ReleaseAnswers) -> None:
    assert narrow(releases, "my_own_method") == []
