"""Releases that can be installed together."""

from __future__ import annotations

import pytest

from matrix.api_map.measured.compatibility import Compatibility, places
from matrix.api_map.query import ApiMap


@pytest.fixture(scope="module")
def compatibility() -> Compatibility:
    return Compatibility(ApiMap())


def test_a_requirement_of_one_excludes_the_other(compatibility: Compatibility) -> None:
    assert compatibility.conflict({"trl": "1.0.0", "transformers": "4.40.2"})
    assert not compatibility.conflict({"trl": "1.0.0", "transformers": "4.57.6"})


def test_a_package_between_them_excludes_two_releases(compatibility: Compatibility) -> None:
    """The tokenizers that transformers 4.34 admits require a huggingface_hub older than accelerate 1.4 does."""
    api = compatibility.api
    place = api.place("transformers", "4.34.1")
    assert place is not None
    assert compatibility.fitting_with("transformers", place, "accelerate") & compatibility.bit("accelerate", "1.4.0")
    assert compatibility.conflict({"transformers": "4.34.1", "accelerate": "1.4.0"})
    assert not compatibility.conflict({"transformers": "4.34.1", "accelerate": "0.24.1"})


def test_a_package_from_before_the_map_excludes_nothing(compatibility: Compatibility) -> None:
    assert compatibility.unmapped("transformers", "4.31.0") == ["tokenizers"]
    assert not compatibility.conflict({"transformers": "4.31.0", "peft": "0.6.2"})


def test_yanked_and_unreadable_releases_cannot_be_installed(compatibility: Compatibility) -> None:
    releases = compatibility.api.releases["transformers"]
    left = [place for place, each in enumerate(releases) if not (each.yanked or each.unreadable)]
    assert list(places(compatibility.all_of("transformers"))) == left
    assert len(left) < len(releases)


def test_a_release_that_cannot_be_installed_is_in_no_set() -> None:
    found = Compatibility(ApiMap(), lambda package, version: (package, version) != ("peft", "0.14.0"))
    assert not found.all_of("peft") & found.bit("peft", "0.14.0")
