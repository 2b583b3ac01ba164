"""Warnings about numbers of green cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from matrix.run.outcome import CheckRecord
from reports.answers.diff.numbers import ENOUGH, median_slowdown, moves, warnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix.run.outcome import Outcome

    Build = Callable[..., Outcome]


def check(value: float) -> dict[str, Any]:
    return {"checks": (CheckRecord(name="loss", value=value, op="<=", bound=0.1, ok=True),)}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (check(0.01), check(0.09), ["loss: 10% -> 90% of the tolerance (0.09 <= 0.1)"]),
        (check(0.05), check(0.09), []),
        (check(0.01), check(0.07), []),
        ({"seconds": 4.0}, {"seconds": 9.0}, ["time: 4.0 s -> 9.0 s"]),
        ({"seconds": 1.0}, {"seconds": 3.0}, []),
        (
            {"metrics": {"peak_rss_mib": 400.0}},
            {"metrics": {"peak_rss_mib": 640.0}},
            ["host memory: 400 MiB -> 640 MiB"],
        ),
        ({"metrics": {"peak_rss_mib": 40.0}}, {"metrics": {"peak_rss_mib": 64.0}}, []),
        ({"seconds": 4.0}, {"seconds": 9.0, "hardware": "cpu: other"}, []),
        ({"seconds": 4.0}, {"seconds": 9.0, "verdict": "fail"}, []),
    ],
)
def test_only_large_changes_are_warned_of(
    old: dict[str, Any], new: dict[str, Any], said: list[str], build_outcome: Build
) -> None:
    assert [*map(str, warnings(build_outcome(**old), build_outcome(**new), slowdown=1.0))] == said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (0.01, 0.06, ["loss: 10% -> 60% of the tolerance"]),
        (0.09, 0.04, ["loss: 90% -> 40% of the tolerance"]),
        (0.01, 0.04, []),
    ],
)
def test_checks_that_move_within_their_tolerance_are_listed(
    old: float, new: float, said: list[str], build_outcome: Build
) -> None:
    base, changed = build_outcome(**check(old)), build_outcome(**check(new))
    assert [*map(str, moves(base, changed))] == said
    assert moves(base, build_outcome(verdict="wrong", **check(new))) == ()


def test_a_slower_machine_is_no_slower_cell(build_outcome: Build) -> None:
    assert warnings(build_outcome(seconds=4.0), build_outcome(seconds=12.0), slowdown=3.0) == ()


def test_a_few_cells_have_no_median(build_outcome: Build) -> None:
    pair = (build_outcome(seconds=1.0), build_outcome(seconds=2.0))
    assert (median_slowdown([pair] * (ENOUGH - 1)), median_slowdown([pair] * ENOUGH)) == (0.0, 2.0)
