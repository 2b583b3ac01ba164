"""GPU sets share the column of the CPU set with their versions, and no set is lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from matrix.run.outcome import SetRecord
from reports.answers import knowledge
from reports.results.comparison import Nearness
from reports.site.columns import columns_of

if TYPE_CHECKING:
    from reports.results.grid import Grid


def a_set(key: str, torch: str, **other: Any) -> SetRecord:
    usual = {
        "transformers": "5.0.0",
        "peft": "0.18.0",
        "bitsandbytes": "0.49.0",
        "accelerate": "1.12.0",
        "trl": "0.26.1",
    }
    pins = {"torch": torch, **usual, **other}
    return SetRecord(key=key, python="3.11", pins=pins, as_of="2025-12-15", why="test", lock=other.get("lock", ""))


def grid_of(*sets: SetRecord) -> Grid:
    from reports.results.grid import Grid

    return Grid(sets=sets, groups=(), cells={}, verdicts={}, options={}, planned=frozenset(), repeats={})


def test_a_set_over_another_torch_shares_the_column() -> None:
    (column,) = columns_of({"cpu": grid_of(a_set("a", "2.9.1")), "cuda": grid_of(a_set("a+t", "2.11.0+cu130"))})
    assert column.near is Nearness.TORCH
    assert column.versions("torch") == {"cpu": "2.9.1", "cuda": "2.11.0"}
    assert column.versions("peft") == {"": "0.18.0"}


def test_a_set_with_other_packages_has_its_own_column() -> None:
    columns = columns_of({"cpu": grid_of(a_set("a", "2.9.1")), "cuda": grid_of(a_set("b", "2.9.1", peft="0.19.0"))})
    assert [dict(each.sets).keys() for each in columns] == [{"cpu"}, {"cuda"}]


def test_the_nearest_pair_comes_first_and_others_stay() -> None:
    gpu = grid_of(a_set("far", "2.11.0"), a_set("same", "2.9.1"))
    columns = columns_of({"cpu": grid_of(a_set("a", "2.9.1")), "cuda": gpu})
    assert [[record.key for record in each.sets.values()] for each in columns] == [["a", "same"], ["far"]]


def test_a_shared_gpu_has_a_column_of_its_own_that_the_matrix_shows_on_request() -> None:
    a = a_set("a", "2.9.1")
    columns = columns_of({"cpu": grid_of(a), "cuda": grid_of(a), "cuda-gloo": grid_of(a)})
    assert [(each.key, each.is_main) for each in columns] == [("a", True), ("a@cuda-gloo", False)]
    assert [each.is_main for each in columns_of({"cuda-gloo": grid_of(a)})] == [True]


def test_every_published_set_is_in_one_column() -> None:
    grids = knowledge.by_device()
    shown = Counter((device, record.key) for each in columns_of(grids) for device, record in each.sets.items())
    assert shown == Counter((device, column.key) for device, grid in grids.items() for column in grid.sets)
