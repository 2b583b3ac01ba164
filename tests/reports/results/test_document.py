from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from matrix.errors import UserError
from reports.results.document import (
    SCHEMA,
    SCHEMA_FILE,
    compressed,
    document,
    dumped,
    json_schema,
    locate,
    read,
    results,
)
from reports.results.grid import grid
from reports.results.stored_results import locate_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.overview import Overview
    from reports.results.grid import Grid

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]


def written(run: Run, now: datetime) -> str:
    return dumped(document(run[0], grid(*run), generated=now))


def strictly(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_the_committed_schema_is_the_documents(assert_golden: Callable[[str, Path], None]) -> None:
    assert_golden(json_schema(), SCHEMA_FILE)


@pytest.mark.parametrize("name", ["small", "hostile"])
def test_a_written_document_is_valid(name: str, later: datetime, request: pytest.FixtureRequest) -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.validate(
        strictly(written(request.getfixturevalue(name), later)), schema, cls=jsonschema.Draft202012Validator
    )


def test_a_document_has_the_promised_keys(small: Run, later: datetime) -> None:
    wanted = {"schema", "generated", "harness", "device", "hardware", "run", "sets", "cells", "flaky", "devices"}
    assert set(strictly(written(small, later))) == wanted


def test_a_document_has_the_differences_of_cpu_and_gpu(
    small: Run, later: datetime, tmp_path: Path, build_beside_gpus: Callable[[Grid], Overview]
) -> None:
    matrix = grid(*small)
    made = document(small[0], matrix, generated=later, devices=build_beside_gpus(matrix).devices)
    jsonschema.validate(
        strictly(dumped(made)), json.loads(SCHEMA_FILE.read_text()), cls=jsonschema.Draft202012Validator
    )
    (tmp_path / "matrix.json").write_text(dumped(made), encoding="utf-8")
    assert read(tmp_path / "matrix.json") == made


def test_a_document_survives_a_round_trip(small: Run, later: datetime, tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    path.write_text(written(small, later), encoding="utf-8")
    assert read(path) == document(small[0], grid(*small), generated=later)


def test_hostile_text_survives_a_round_trip(hostile: Run, later: datetime, tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    path.write_text(written(hostile, later), encoding="utf-8")
    assert dumped(read(path)) == written(hostile, later)


def test_numbers_that_json_lacks_come_back_as_numbers(hostile: Run, later: datetime, tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    path.write_text(written(hostile, later), encoding="utf-8")
    cell = read(path).cells[0]
    found = [cell.checks[0].value, cell.checks[0].bound, cell.metrics["peak"], cell.facts["odd"]]
    assert repr(found) == "[nan, inf, -inf, inf]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{{"schema": {SCHEMA + 1}}}', f"schema {SCHEMA + 1} is newer than {SCHEMA}.*update ftmatrix"),
        ('{"schema": "x"}', "no whole number under 'schema'"),
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ('{"schema": 1}', "generated: Field required"),
    ],
)
def test_another_file_is_refused_in_a_sentence(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "matrix.json"
    path.write_text(text)
    with pytest.raises(UserError, match=f"matrix.json: {message}"):
        read(path)


def test_a_missing_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "matrix.json")


def test_an_invalid_document_is_refused_with_the_place(small: Run, later: datetime, tmp_path: Path) -> None:
    data = strictly(written(small, later))
    data["cells"][2]["verdict"] = "green"
    (tmp_path / "matrix.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"cells\[2\]\.verdict"):
        read(tmp_path / "matrix.json")


def test_a_compressed_document_is_read_like_a_plain_one(small: Run, later: datetime, tmp_path: Path) -> None:
    (tmp_path / "matrix.json").write_text(written(small, later), encoding="utf-8")
    (tmp_path / "matrix.json.gz").write_bytes(compressed(written(small, later)))
    assert read(tmp_path / "matrix.json.gz") == read(tmp_path / "matrix.json")


def test_compression_depends_on_nothing_but_the_text() -> None:
    packed = compressed("text")
    assert packed == compressed("text")
    assert packed[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"  # no name, no time, no system


def test_a_cut_compressed_document_is_refused_in_a_sentence(small: Run, later: datetime, tmp_path: Path) -> None:
    path = tmp_path / "matrix.json.gz"
    path.write_bytes(compressed(written(small, later))[:-40])
    with pytest.raises(UserError, match="damaged gzip file"):
        read(path)


def test_both_spellings_of_a_document_are_found(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "matrix.json", tmp_path / "b" / "matrix.json.gz"]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    assert locate_all(tmp_path) == paths
    assert locate(tmp_path) is None


def test_a_folder_with_both_spellings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "matrix.json").touch()
    (tmp_path / "matrix.json.gz").touch()
    with pytest.raises(UserError, match="holds both"):
        locate_all(tmp_path)


def test_the_grid_of_a_document_has_its_flaky_cells(
    build_run: Callable[..., RunRecord], build_set: Callable[..., SetRecord], build_outcome: Callable[..., Outcome]
) -> None:
    outcomes = [build_outcome("a", verdict="fail"), build_outcome("a", repeat=2), build_outcome("b")]
    record = build_run()
    made = grid(record, [build_set()], outcomes)
    again = results(document(record, made, generated=record.started))
    assert again.flaky == made.flaky
    assert again.flaky
