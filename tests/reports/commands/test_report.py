"""``ftmatrix report``: runs and published results are rendered, and a run is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from cases.space.verdict import RED, Verdict
from matrix.run.store import TORN, Store
from reports.answers import answer_index, knowledge
from reports.commands.report import show
from reports.results.document import read
from reports.results.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord

    Run = tuple[RunRecord, list[SetRecord], list[Outcome]]
    Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(small: Run, tmp_path: Path) -> Path:
    store = Store.create(tmp_path / "run", small[0])
    for each in small[1]:
        store.note(each)
    for outcome in small[2]:
        store.append(outcome)
    store.close()
    return tmp_path / "run"


def test_a_run_is_rendered_into_its_directory(run: Path, ftmatrix: Command) -> None:
    code, out, _ = ftmatrix("report", str(run))
    assert code == 1  # one cell was lost
    assert f"Report: {run / 'index.html'}" in out
    assert {"index.html", "matrix.json", "matrix.md", "outcomes.parquet", "junit.xml"} <= {
        path.name for path in run.iterdir()
    }


def test_a_published_run_can_be_rendered_as_a_page(run: Path, tmp_path: Path, ftmatrix: Command) -> None:
    ftmatrix("report", str(run), "--publish", str(tmp_path / "published"))
    _, out, _ = ftmatrix("report", str(tmp_path / "published"), "--out", str(tmp_path / "pages"))
    assert f"Report: {tmp_path / 'pages' / 'index.html'}" in out
    cells = read(tmp_path / "pages" / "matrix.json").cells
    assert cells == load(tmp_path / "published").matrix.outcomes


def test_no_page_is_rendered_among_published_results(run: Path, tmp_path: Path, ftmatrix: Command) -> None:
    ftmatrix("report", str(run), "--publish", str(tmp_path / "published"))
    code, _, err = ftmatrix("report", str(tmp_path / "published"))
    assert (code, "name a folder for the rendered files with --out" in err) == (2, True)


def test_the_index_of_published_results_is_written(run: Path, tmp_path: Path, ftmatrix: Command) -> None:
    folder = tmp_path / "published"
    ftmatrix("report", str(run), "--publish", str(folder / "deeper"))
    code, out, _ = ftmatrix("report", str(folder), "--index")
    assert (code, out.strip()) == (0, f"Index: {folder / answer_index.FILE}")
    assert knowledge.current_index(knowledge.files_in(folder)) is not None


def test_the_index_comes_with_a_summary_of_the_folders_own_run(run: Path, tmp_path: Path, ftmatrix: Command) -> None:
    ftmatrix("report", str(run), "--publish", str(tmp_path / "published"))
    _, out, _ = ftmatrix("report", str(tmp_path / "published"), "--index")
    assert out.splitlines()[1] == f"Summary: {tmp_path / 'published' / 'matrix.md'}"
    assert "train-lora-fsdp1-bf16" in (tmp_path / "published" / "matrix.md").read_text(encoding="utf-8")


def test_an_index_needs_a_folder_of_published_results_alone(run: Path, ftmatrix: Command) -> None:
    code, _, err = ftmatrix("report", str(run), "--index")
    assert (code, "holds no results" in err) == (2, True)
    assert "--index takes one folder" in ftmatrix("report", str(run), "--index", "--out", str(run))[2]


def test_a_directory_without_results_is_refused(tmp_path: Path, ftmatrix: Command) -> None:
    code, _, err = ftmatrix("report", str(tmp_path))
    assert (code, "has no run.json" in err) == (2, True)


def test_a_damaged_line_is_reported_and_the_rest_is_rendered(run: Path, ftmatrix: Command) -> None:
    path = run / "outcomes.jsonl"
    path.write_bytes(b"\xff\n" + path.read_bytes())
    code, out, _ = ftmatrix("report", str(run))
    assert code == 1
    assert "1 damaged line was dropped from outcomes.jsonl (line 1)" in out
    assert "1 fail" in out or "2 fail" in out


def test_a_half_written_last_line_is_reported_and_the_rest_is_rendered(run: Path, ftmatrix: Command) -> None:
    with (run / "outcomes.jsonl").open("a") as file:
        file.write('{"schema": 5, "set"')
    code, out, _ = ftmatrix("report", str(run))
    assert code == 1
    assert f"outcomes.jsonl {TORN}" in out


def test_the_site_of_a_damaged_run_is_written_and_the_damage_reported(
    run: Path, tmp_path: Path, ftmatrix: Command
) -> None:
    path = run / "outcomes.jsonl"
    path.write_bytes(b"\xff\n" + path.read_bytes() + b'{"schema": 5, "set"')
    code, out, err = ftmatrix("report", str(run), "--site", str(tmp_path / "site"))
    assert code == 0
    assert f"Site: {tmp_path / 'site' / 'index.html'}" in out
    assert [line.partition(" (")[0] for line in err.splitlines()] == [
        "1 damaged line was dropped from outcomes.jsonl",
        f"outcomes.jsonl {TORN}",
    ]


def test_the_site_of_a_newer_run_is_refused_in_one_line(run: Path, tmp_path: Path, ftmatrix: Command) -> None:
    with (run / "outcomes.jsonl").open("a") as file:
        file.write('{"schema": 99}\n')
    code, _, err = ftmatrix("report", str(run), "--site", str(tmp_path / "site"))
    assert (code, len(err.splitlines()), "update ftmatrix" in err) == (2, 1, True)
    assert not (tmp_path / "site").exists()


def test_the_site_of_a_damaged_table_is_refused_by_its_name(run: Path, tmp_path: Path, ftmatrix: Command) -> None:
    ftmatrix("report", str(run), "--publish", str(tmp_path / "published" / "one"))
    table = tmp_path / "published" / "one" / "outcomes.parquet"
    table.write_bytes(table.read_bytes()[:-100])
    code, _, err = ftmatrix("report", str(tmp_path / "published"), "--site", str(tmp_path / "site"))
    assert (code, "one/outcomes.parquet" in err, "publish the run again" in err) == (2, True, True)


def test_a_cell_with_an_option_of_a_newer_version_is_rendered(
    run: Path, ftmatrix: Command, build_outcome: Callable[..., Outcome]
) -> None:
    path = run / "outcomes.jsonl"
    options = {"method": "lora", "strategy": "fsdp3", "tensor_parallel": 2}
    for number, verdict in enumerate(("fail", "wrong", "pass", "skip")):
        newer = build_outcome(f"train-lora-fsdp3-bf16-{number}", "2024-06", verdict, options=options)
        path.write_text(path.read_text() + newer.model_dump_json(by_alias=True) + "\n")
    code, out, _ = ftmatrix("report", str(run))
    assert code == 1
    assert "2024-06__train-lora-fsdp3-bf16-0" in out


@pytest.mark.parametrize(
    ("verdict", "fail_on_red", "code"),
    [
        (Verdict.PASS, True, 0),
        (Verdict.SKIP, True, 0),
        (Verdict.WRONG, False, 0),
        (Verdict.LOST, False, 1),
        *((each, True, 1) for each in (*sorted(RED), Verdict.BLOCKED, Verdict.LOST)),
    ],
)
def test_red_cells_fail_a_run_only_on_request(
    small: Run,
    tmp_path: Path,
    verdict: Verdict,
    fail_on_red: bool,  # noqa: FBT001 - a parameter of pytest
    code: int,
) -> None:
    store = Store.create(tmp_path / "run", small[0])
    store.note(small[1][0])
    store.append(small[2][0].model_copy(update={"verdict": verdict}))
    store.close()
    assert show(tmp_path / "run", Console(quiet=True), fail_on_red=fail_on_red) == code


def test_the_site_of_published_results_is_written(run: Path, ftmatrix: Command, tmp_path: Path) -> None:
    ftmatrix("report", str(run), "--publish", str(tmp_path / "published"))
    code, out, _ = ftmatrix("report", str(tmp_path / "published"), "--site", str(tmp_path / "site"))
    assert code == 0
    assert f"Site: {tmp_path / 'site' / 'index.html'}" in out
    cases = {path.stem for path in (tmp_path / "site" / "case").iterdir()}
    assert cases == {outcome.case for outcome in load(tmp_path / "published").outcomes}


@pytest.mark.parametrize("other", [["--out", "page"], ["--index"], ["--publish", "folder"]])
def test_the_site_takes_no_other_option(run: Path, ftmatrix: Command, tmp_path: Path, other: list[str]) -> None:
    code, _, error = ftmatrix("report", str(run), "--site", str(tmp_path / "site"), *other)
    assert code == 2
    assert "--site takes one folder" in error


@pytest.mark.parametrize(
    ("content", "words"),
    [(b'{"schema": 99}', "update ftmatrix"), (b"\xff\xfe", "not JSON"), (b'{"schema": 5, "cells": [', "not JSON")],
)
def test_the_site_refuses_results_that_cannot_be_read(
    ftmatrix: Command, tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "matrix.json").write_bytes(content)
    code, _, error = ftmatrix("report", str(tmp_path), "--site", str(tmp_path / "site"))
    assert code == 2
    assert words in error
