"""The packaged table of releases tells which versions exist."""

from __future__ import annotations

import pytest

from matrix.versions import releases, sets
from matrix.versions.sets import PACKAGES


def test_every_package_has_releases_in_order() -> None:
    for name in PACKAGES:
        several = releases.of_package(name).versions
        assert len(several) > 20
        assert list(several) == sorted(set(several))


def test_the_versions_of_the_dated_sets_were_released() -> None:
    slices = [each for each in sets.load() if each.default]
    assert slices
    for name in PACKAGES:
        table = releases.of_package(name)
        assert [each.key for each in slices if table.why_not_released(each.pins[name])] == []


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.8.1", "torch 2.8.1 was not released by 2026-11-13; its neighbours are 2.8.0 and 2.9.0"),
        ("3.0.0", "torch 3.0.0 was not released by 2026-11-13; the newest torch is 2.15.0"),
        ("2.8.1+cu128", "torch 2.8.1 was not released by 2026-11-13; its neighbours are 2.8.0 and 2.9.0"),
        ("2.8", ""),
        ("2.8.0+cu128", ""),
        ("2.8.1rc1", ""),
        ("1.13.9", ""),  # older than the table
        ("nightly", ""),
    ],
)
def test_a_version_that_was_not_released_is_named_with_its_neighbours(version: str, why: str) -> None:
    assert releases.of_package("torch").why_not_released(version) == why


def test_a_yanked_release_is_a_release() -> None:
    table = releases.of_package("transformers")
    assert (table.is_yanked("4.46.0"), table.why_not_released("4.46.0"), table.is_yanked("4.46.1")) == (True, "", False)


def test_a_package_without_a_table_is_unknown() -> None:
    assert releases.of_package("numpy").why_not_released("99.0") == ""
