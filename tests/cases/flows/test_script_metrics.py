"""Tests the metrics of users' scripts: the files that report them, and their bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cases.flows.script_metrics import Bound, checks, read
from cases.space.verdict import missed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def red(folder: Path, **bounds: Bound) -> list[str]:
    return [str(check) for check in missed(checks(bounds, read(folder)))]


def lines(folder: Path, *rows: Mapping[str, object] | str) -> Path:
    text = "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)
    (folder / "metrics.jsonl").write_text(text)
    return folder


def test_a_script_without_metrics_and_bounds_is_green(tmp_path: Path) -> None:
    assert red(tmp_path) == []


def test_the_last_value_must_be_within_its_bounds(tmp_path: Path) -> None:
    lines(tmp_path, {"f1": 0.9}, {"f1": 0.4})
    assert red(tmp_path, f1=Bound(min=0.5)) == ["last value of f1 0.4 >= 0.5"]
    assert red(tmp_path, f1=Bound(max=0.5)) == []


@pytest.mark.parametrize(("values", "is_red"), [((3, 4, 2), False), ((3, 1, 3), True), ((2, 3), True)])
def test_a_decreasing_metric_ends_below_its_first_value(tmp_path: Path, values: tuple[int, ...], is_red: bool) -> None:  # noqa: FBT001 - a parameter of pytest
    lines(tmp_path, *({"loss": value} for value in values))
    assert bool(red(tmp_path, loss=Bound(decreases=True))) is is_red


def test_one_value_shows_no_change(tmp_path: Path) -> None:
    assert "values of loss 1 >= 2" in [
        each.replace("1.0", "1").replace("2.0", "2")
        for each in red(lines(tmp_path, {"loss": 1}), loss=Bound(decreases=True))
    ]


def test_a_bound_on_a_metric_that_is_never_reported_is_red(tmp_path: Path) -> None:
    lines(tmp_path, {"loss": 1.0})
    assert red(tmp_path, f1=Bound(min=0.5)) == ["metrics with a bound that the script did not report f1 == none"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_a_loss_must_be_finite_without_a_bound(tmp_path: Path, value: str) -> None:
    lines(tmp_path, {"train/loss": 1.0}, f'{{"train/loss": {value}}}', {"train/loss": 1.0})
    assert red(tmp_path) == ["metrics that are not finite train/loss (value 2) == none"]


def test_another_metric_may_be_infinite_unless_it_has_a_bound(tmp_path: Path) -> None:
    lines(tmp_path, '{"grad_norm": Infinity}', {"grad_norm": 1.0})
    assert red(tmp_path) == []
    assert red(tmp_path, grad_norm=Bound()) == ["metrics that are not finite grad_norm (value 1) == none"]


@pytest.mark.parametrize("text", ['{"loss": 2', "[1, 2]", "loss 2", "\x00"])
def test_a_line_that_is_no_object_is_red(tmp_path: Path, text: str) -> None:
    lines(tmp_path, {"loss": 1.0}, text)
    assert red(tmp_path) == ["places that hold no JSON object metrics.jsonl line 2 == none"]


def test_values_that_are_no_numbers_do_not_count(tmp_path: Path) -> None:
    lines(tmp_path, {"loss": "low", "ok": True, "none": None})
    assert read(tmp_path).series == {}


def test_the_longest_state_of_the_trainer_counts(tmp_path: Path) -> None:
    for folder, losses in (("checkpoint-1", [3.0]), ("checkpoint-2", [3.0, 2.0])):
        (tmp_path / folder).mkdir()
        state = {"log_history": [{"loss": loss, "step": step} for step, loss in enumerate(losses)]}
        (tmp_path / folder / "trainer_state.json").write_text(json.dumps(state))
    assert read(tmp_path).series["loss"] == [3.0, 2.0]


def test_a_metric_in_several_files_counts_as_in_the_first(tmp_path: Path) -> None:
    lines(tmp_path, {"loss": 1.0})
    (tmp_path / "all_results.json").write_text(json.dumps({"loss": 5.0, "eval_f1": 0.5}))
    assert read(tmp_path).series == {"loss": [1.0], "eval_f1": [0.5]}


def test_a_state_that_another_program_wrote_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text('{"log_history": {"loss": 1}}')
    assert (read(tmp_path).series, red(tmp_path)) == ({}, [])
