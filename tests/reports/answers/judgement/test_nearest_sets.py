"""The measured sets that an environment matches, and its distance from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cases.space.options import Options
from matrix.run.outcome import SetRecord
from reports.answers.judgement import nearest_sets

if TYPE_CHECKING:
    from collections.abc import Callable

PINS = {
    "torch": "2.8.0",
    "transformers": "4.56.1",
    "peft": "0.17.1",
    "bitsandbytes": "0.47.0",
    "accelerate": "1.10.1",
    "trl": "0.23.0",
}


@pytest.fixture
def columns(build_set: Callable[..., SetRecord]) -> list[SetRecord]:
    older = {**PINS, "torch": "2.6.0", "trl": "0.15.2"}
    newer = {**PINS, "torch": "2.10.0", "trl": "0.29.0"}
    return [
        build_set("2025-03", pins=older),
        build_set("2025-09", pins=PINS),
        build_set("2025-09+hub1.0", pins=PINS),
        build_set("2025-09+peft0.16.0", pins={**PINS, "peft": "0.16.0"}),
        build_set("2026-03", pins=newer),
    ]


@pytest.mark.parametrize(
    ("changes", "unused"),
    [
        ({}, {"bitsandbytes", "accelerate", "trl"}),
        ({"method": "full"}, {"peft", "bitsandbytes", "accelerate", "trl"}),
        ({"quant": "nf4"}, {"trl"}),
        ({"optim": "adamw_8bit"}, {"accelerate", "trl"}),
        ({"front_end": "trainer"}, {"bitsandbytes", "trl"}),
        ({"front_end": "sft"}, {"bitsandbytes"}),
    ],
)
def test_only_packages_that_a_job_uses_count(changes: dict[str, str], unused: set[str]) -> None:
    assert set(PINS) - set(nearest_sets.used_packages(Options().but(**changes))) == unused


def test_a_local_version_counts_as_its_public_version(columns: list[SetRecord]) -> None:
    assert nearest_sets.differing_packages({**PINS, "torch": "2.8.0+cu128"}, columns[1]) == ()


def test_a_missing_package_differs(columns: list[SetRecord]) -> None:
    installed = {name: version for name, version in PINS.items() if name != "trl"}
    assert nearest_sets.differing_packages(installed, columns[1]) == ("trl",)


def test_the_nearest_set_differs_in_the_fewest_packages(columns: list[SetRecord]) -> None:
    found = nearest_sets.nearest_first({**PINS, "torch": "2.9.1"}, columns, tuple(PINS))
    assert [column.key for column in found] == ["2025-09", "2026-03", "2025-09+peft0.16.0", "2025-03"]


def test_a_set_with_a_seventh_package_is_never_nearest(columns: list[SetRecord]) -> None:
    assert "2025-09+hub1.0" not in {column.key for column in nearest_sets.nearest_first(PINS, columns, tuple(PINS))}


def test_two_sets_enclose_versions_only_if_they_do_in_every_package(columns: list[SetRecord]) -> None:
    found = nearest_sets.enclosing_sets({**PINS, "torch": "2.9.1"}, columns, tuple(PINS))
    assert found is not None
    assert [column.key for column in found] == ["2025-09", "2026-03"]
    assert nearest_sets.enclosing_sets({**PINS, "torch": "2.5.0"}, columns, tuple(PINS)) is None
    assert nearest_sets.enclosing_sets({**PINS, "torch": "2.11.0"}, columns, tuple(PINS)) is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"torch": "2.9.1", "peft": "0.16.5"}, True),
        ({"torch": "2.5.1"}, False),
        ({"torch": "2.11.0"}, False),
        ({"bitsandbytes": "0.47.1"}, False),
    ],
)
def test_versions_are_within_sets_only_if_they_are_in_every_package(
    changes: dict[str, str], columns: list[SetRecord], *, expected: bool
) -> None:
    assert nearest_sets.is_within({**PINS, **changes}, columns, tuple(PINS)) is expected


def test_no_sets_or_a_missing_package_enclose_nothing(columns: list[SetRecord]) -> None:
    assert not nearest_sets.is_within(PINS, [], tuple(PINS))
    assert not nearest_sets.is_within({"torch": "2.8.0"}, columns, ("torch", "peft"))


def test_an_invalid_version_sorts_first() -> None:
    assert nearest_sets.public("unknown") < nearest_sets.public("0.0.1")


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        ("2025-03", True),
        ("2025-03+py3.12", True),
        ("2025-03+py3.12+torch2.11.0+cu130", True),
        ("2026-09+py3.12+host", True),
        ("2025-12+autoawq0.2.7+py3.12", False),
    ],
)
def test_a_set_is_plain_whatever_its_python_and_build_of_torch(key: str, plain: bool) -> None:  # noqa: FBT001 - expected
    column = SetRecord(key=key, python="3.12", pins={}, as_of="2025-03-15", why="a slice")
    assert nearest_sets.is_plain(column) is plain
