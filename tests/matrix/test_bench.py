from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from matrix import bench

if TYPE_CHECKING:
    from collections.abc import Sequence


def a_pass(*, wall_s: float, cells: int = 40) -> bench.Pass:
    names = tuple(f"cell-{number:02}" for number in range(cells))
    return bench.Pass(wall_s=wall_s, import_s=8.0, bodies_s=20.0, cells=names, seconds=(0.5,) * cells)


def summed(passes: Sequence[bench.Pass], alone: Sequence[float]) -> dict[str, Any]:
    class Ground:
        version_set = type("Set", (), {"key": "2025-09"})
        hardware, workers = "cpu: X x 2", 2

    return bench.summed(Ground, passes, ("cell-00",), alone, [1.0, 3.0, 2.0]).as_json()  # type: ignore[arg-type]


def test_the_pass_with_the_median_wall_time_counts() -> None:
    found = summed([a_pass(wall_s=30.0), a_pass(wall_s=20.0), a_pass(wall_s=90.0)], [16.0])
    assert found["harness_wall_s"] == 30.0


def test_the_ideal_is_one_import_and_the_bodies_shared_by_the_workers() -> None:
    found = summed([a_pass(wall_s=27.0)], [16.0])
    assert (found["ideal_wall_s"], found["wall_over_ideal"]) == (18.0, 1.5)


def test_the_ratio_is_of_cells_a_minute() -> None:
    found = summed([a_pass(wall_s=24.0)], [15.0, 30.0, 12.0])
    assert found["harness_cells_per_minute"] == 100.0
    assert found["torchrun_cells_per_minute"] == 4.0
    assert found["times_torchrun"] == 25.0


def test_install_time_is_a_median() -> None:
    assert summed([a_pass(wall_s=24.0)], [15.0])["install_warm_cache_s"] == 2.0


@pytest.mark.parametrize("count", [1, 3, 8, 100])
def test_a_sample_is_never_larger_than_asked_nor_than_there_is(count: int) -> None:
    cells = [f"cell-{number}" for number in range(10)]
    assert len(bench.spread(cells, count)) == min(count, 10)


def test_a_sample_reaches_over_all_cells() -> None:
    assert bench.spread([str(number) for number in range(8)], 4) == ("0", "2", "4", "6")


@pytest.mark.parametrize(("verdict", "counts"), [("pass", True), ("fail", True), ("skip", False), ("lost", False)])
def test_only_cells_that_ran_count(verdict: str, counts: bool) -> None:  # noqa: FBT001 - a column of the table
    assert bench.ran({"verdict": verdict}) is counts
