"""Outcomes as a data frame, and as ``outcomes.parquet``."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from cases.space.options import Options
from matrix.errors import UserError
from reports.results import frame as frames
from reports.results.frame import COLUMNS, FAILED_CHECKS, frame, parquet, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]


def test_a_frame_has_one_row_per_outcome(small: Run) -> None:
    rows = frame(small[2], small[1])
    assert list(zip(rows["set"], rows["case"], rows["verdict"], strict=True)) == [
        (each.set, each.case, each.verdict.value) for each in small[2]
    ]


def test_every_option_is_a_column(small: Run) -> None:
    assert {field.name for field in fields(Options)} <= set(frame(small[2], small[1]).columns)


def test_no_option_has_the_name_of_another_column() -> None:
    assert {field.name for field in fields(Options)} & {*COLUMNS, FAILED_CHECKS} == set()


def test_an_option_that_does_not_apply_is_null(build_outcome: Callable[..., Outcome]) -> None:
    rows = frame([build_outcome(options={"method": "lora", "use_orig_params": True}), build_outcome(options={})], [])
    assert rows["method"].isna().tolist() == [False, True]
    assert rows["use_orig_params"].dtype == "boolean"


def test_a_row_has_the_pins_of_its_set(small: Run) -> None:
    rows = frame(small[2], small[1])
    assert set(rows["torch"]) == {small[1][0].pins["torch"]}


def test_failed_checks_are_listed_by_name(small: Run) -> None:
    rows = frame(small[2], small[1])
    assert rows.loc[rows["verdict"] == "wrong", FAILED_CHECKS].tolist() == [["gradient"]]


def test_an_option_of_a_newer_version_gets_a_column(build_outcome: Callable[..., Outcome]) -> None:
    rows = frame([build_outcome(options={"tensor_parallel": 2, "world_size": "many"})], [])
    assert rows["tensor_parallel"].tolist() == ["2"]
    assert rows["world_size"].tolist() == ["many"]


@pytest.mark.parametrize("name", ["small", "hostile"])
def test_a_file_is_read_back_as_it_was_written(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    path = tmp_path / frames.FILE
    path.write_bytes(parquet(run[2], run[1]))
    written, found = frame(run[2], run[1]), read(path)
    found[FAILED_CHECKS] = found[FAILED_CHECKS].map(list)
    pd.testing.assert_frame_equal(found, written)


def test_a_run_without_outcomes_has_every_column(tmp_path: Path) -> None:
    path = tmp_path / frames.FILE
    path.write_bytes(parquet([], []))
    assert {*COLUMNS, FAILED_CHECKS} <= set(read(path).columns)


@pytest.mark.parametrize("content", [None, b"no parquet", b"PAR1"], ids=["missing", "text", "cut"])
def test_another_file_is_refused_in_a_sentence(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / frames.FILE
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=str(path)):
        read(path)


def test_a_parquet_file_without_outcomes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / frames.FILE
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(UserError, match="no column set, case"):
        read(path)
