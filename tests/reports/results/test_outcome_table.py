"""A run as ``outcomes.parquet``: columns to query, and everything that the run stored."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cases.space.options import Options
from matrix.errors import UserError
from reports.answers.knowledge import PUBLISHED
from reports.render.write import parquet
from reports.results.document import SCHEMA
from reports.results.loading import results
from reports.results.outcome_columns import COLUMNS, FAILED_CHECKS, WHOLE
from reports.results.outcome_rows import whole
from reports.results.outcome_table import KEY, OutcomeTable, content, packed_header
from reports.results.stored_results import FILE, read

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]

# Tables of an older version, which no command writes, have no run.
PATHS = sorted(path for path in PUBLISHED.rglob(FILE) if KEY in (pq.read_metadata(path).metadata or {}))


@pytest.fixture
def write(tmp_path: Path, later: datetime) -> Callable[..., Path]:
    def written(record: RunRecord, sets: list[SetRecord], outcomes: list[Outcome]) -> Path:
        path = tmp_path / FILE
        path.write_bytes(parquet(results(record, sets, outcomes), generated=later))
        return path

    return written


def test_a_file_has_one_row_per_outcome(small: Run, write: Callable[..., Path]) -> None:
    rows = pd.read_parquet(write(*small))
    assert {*zip(rows["set"], rows["case"], rows["verdict"], strict=True)} == {
        (each.set, each.case, each.verdict.value) for each in small[2]
    }


def test_every_option_is_a_column(small: Run, write: Callable[..., Path]) -> None:
    assert {field.name for field in fields(Options)} <= {*pq.read_schema(write(*small)).names}


def test_no_option_has_the_name_of_another_column() -> None:
    assert {field.name for field in fields(Options)} & {*COLUMNS, FAILED_CHECKS, *WHOLE} == set()


def test_an_option_that_does_not_apply_is_null(
    build_outcome: Callable[..., Outcome], small: Run, write: Callable[..., Path]
) -> None:
    stated = build_outcome("a", options={"method": "lora", "use_orig_params": True})
    table = pq.read_table(write(*small[:2], [stated, build_outcome("b", options={})]))
    assert table["method"].to_pylist() == ["lora", None]
    assert table["use_orig_params"].type == pa.bool_()


def test_a_row_has_the_pins_of_its_set(small: Run, write: Callable[..., Path]) -> None:
    assert set(pd.read_parquet(write(*small))["torch"]) == {small[1][0].pins["torch"]}


def test_failed_checks_are_listed_by_name(small: Run, write: Callable[..., Path]) -> None:
    rows = pd.read_parquet(write(*small))
    assert [list(each) for each in rows.loc[rows["verdict"] == "wrong", FAILED_CHECKS]] == [["gradient"]]


def test_an_option_of_a_newer_version_gets_a_column(
    build_outcome: Callable[..., Outcome], small: Run, write: Callable[..., Path]
) -> None:
    newer = build_outcome(options={"tensor_parallel": 2, "world_size": "many"})
    table = pq.read_table(write(*small[:2], [newer]))
    assert (table["tensor_parallel"].to_pylist(), table["world_size"].to_pylist()) == (["2"], ["many"])


@pytest.mark.parametrize("name", ["small", "hostile"])
def test_every_field_is_read_back(name: str, write: Callable[..., Path], request: pytest.FixtureRequest) -> None:
    record, sets, outcomes = request.getfixturevalue(name)
    found = read(write(record, sets, outcomes))
    assert found is not None
    assert (found.record, [*found.sets]) == (record, sorted(sets, key=lambda each: each.key))
    stored = {whole(each).model_dump_json() for each in found.outcomes}  # NaN is not equal to itself
    assert stored == {each.model_dump_json() for each in outcomes}


def test_every_attempt_and_repeat_is_stored(
    build_outcome: Callable[..., Outcome], small: Run, write: Callable[..., Path]
) -> None:
    runs = [build_outcome(verdict="lost"), build_outcome(attempt=2), build_outcome(verdict="wrong", repeat=2)]
    found = read(write(*small[:2], runs))
    assert found is not None
    assert [whole(each) for each in found.outcomes] == runs


def test_rows_of_later_row_groups_are_found(
    build_outcome: Callable[..., Outcome],
    small: Run,
    write: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reports.results.outcome_table.ROWS", 2)
    outcomes = [build_outcome(f"case {number}", reason=str(number)) for number in range(25)]
    found = read(write(*small[:2], outcomes))
    assert found is not None
    assert [whole(each) for each in found.outcomes] == outcomes


def test_a_run_without_outcomes_has_every_column(small: Run, write: Callable[..., Path]) -> None:
    found = read(write(*small[:2], []))
    assert found is not None
    assert found.outcomes == ()
    assert {*COLUMNS, FAILED_CHECKS, *WHOLE} <= {*pq.read_schema(write(*small[:2], [])).names}


@pytest.mark.parametrize("text", [b"no parquet", b"PAR1"], ids=["text", "cut"])
def test_another_file_is_refused_in_a_sentence(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{FILE}: not a Parquet file .*; publish the run again"):
        OutcomeTable(text, tmp_path / FILE)


def test_a_parquet_file_without_outcomes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(UserError, match="no column set, case"):
        read(path)


@pytest.mark.parametrize("share", [0.1, 0.5], ids=["rows", "footer"])
def test_damaged_parts_are_refused_in_a_sentence(small: Run, write: Callable[..., Path], share: float) -> None:
    path = write(*small)
    damaged = int(path.stat().st_size * share)
    path.write_bytes(bytes(damaged) + path.read_bytes()[damaged:])
    with pytest.raises(UserError, match=f"{FILE}: .*; publish the run again"):
        read(path)


def test_results_of_a_newer_version_are_refused(small: Run, write: Callable[..., Path]) -> None:
    path = write(*small)
    found = read(path)
    assert found is not None
    assert found.header is not None
    path.write_bytes(content(found.header.model_copy(update={"schema_": SCHEMA + 1}), found.outcomes))
    with pytest.raises(UserError, match=f"schema {SCHEMA + 1} is newer"):
        read(path)


def test_a_table_of_an_older_version_is_no_run(small: Run, write: Callable[..., Path]) -> None:
    path = write(*small)
    old = pq.read_table(path).drop_columns([*WHOLE])
    pq.write_table(old, path)
    assert read(path) is None
    known = OutcomeTable(path.read_bytes(), path).plain_outcomes()
    assert [(each.case, each.set, each.verdict) for each in known] == [
        (row["case"], row["set"], row["verdict"]) for row in old.to_pylist()
    ]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.parent.relative_to(PUBLISHED).as_posix())
def test_published_results_are_written_as_they_were_read(path: Path, tmp_path: Path) -> None:
    """Every field of every published outcome, set and run goes through the file and back unchanged."""
    found = read(path)
    assert found is not None
    assert found.header is not None
    again = tmp_path / FILE
    again.write_bytes(content(found.header, found.outcomes))
    other = read(again)
    assert other is not None
    assert (other.header, other.sets) == (found.header, found.sets)
    assert [*map(whole, other.outcomes)] == [*map(whole, found.outcomes)]
    columns: list[dict[str, Any]] = [pq.read_table(each).to_pydict() for each in (path, again)]
    assert columns[0] == columns[1]


def test_the_header_of_a_file_is_text(small: Run, write: Callable[..., Path]) -> None:
    found = read(write(*small))
    assert found is not None
    assert found.header is not None
    assert pq.read_metadata(write(*small)).metadata[KEY] == packed_header(found.header)
