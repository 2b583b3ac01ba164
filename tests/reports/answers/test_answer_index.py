"""Answers load the index of published results exactly as they would merge the documents."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Verdict
from matrix.errors import UserError
from reports.answers import answer_index, knowledge
from reports.results.document import document, dumped
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matrix.run.outcome import Outcome, RunRecord, SetRecord


@pytest.fixture
def folder(
    tmp_path: Path,
    build_run: Callable[..., RunRecord],
    build_set: Callable[..., SetRecord],
    build_outcome: Callable[..., Outcome],
) -> Path:
    for device in ("cpu", "cuda"):
        record = build_run(device=device)
        matrix = grid(record, [build_set()], [build_outcome("a"), build_outcome("b", verdict="fail")])
        (tmp_path / device).mkdir()
        (tmp_path / device / "matrix.json").write_text(dumped(document(record, matrix, generated=record.started)))
    return tmp_path


@pytest.fixture
def index(folder: Path) -> Path:
    path = folder / answer_index.FILE
    path.write_bytes(knowledge.index_content(folder))
    return path


def changed(path: Path, **values: Any) -> None:
    """Change keys at the top of an index."""
    content = {**json.loads(gzip.decompress(path.read_bytes())), **values}
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def mark(path: Path) -> None:
    """Let the index, but no document, say that every cell hung."""
    path.write_bytes(
        gzip.compress(gzip.decompress(path.read_bytes()).replace(b'"verdict":"pass"', b'"verdict":"hang"'))
    )


def test_the_packaged_index_is_that_of_the_published_results() -> None:
    """If this fails: ftmatrix report reports/published --index."""
    made = json.loads(gzip.decompress(knowledge.index_content(knowledge.PUBLISHED)))
    assert json.loads(gzip.decompress((knowledge.PUBLISHED / answer_index.FILE).read_bytes())) == made


def test_an_index_gives_the_grids_of_its_documents() -> None:
    files = knowledge.files_in(knowledge.PUBLISHED)
    for device in knowledge.devices(files):
        merged = knowledge.grid_of(knowledge.of_device(files, device))
        used = {cell: answer_index.bare(outcome) for cell, outcome in merged.cells.items()}
        assert knowledge.device_grid(files, device) == replace(merged, cells=used)


def test_a_current_index_is_read_instead_of_the_documents(folder: Path, index: Path) -> None:
    mark(index)
    assert knowledge.load(folder).verdict("a", "2024-06") is Verdict.HANG


def test_an_index_restricts_the_cases(folder: Path, index: Path) -> None:
    assert index.exists()
    assert {device: each.cases for device, each in knowledge.by_device(folder, only={"b"}).items()} == {
        "cpu": ("b",),
        "cuda": ("b",),
    }


def test_an_index_of_other_documents_is_ignored(folder: Path, index: Path) -> None:
    mark(index)
    document = folder / "cpu" / "matrix.json"
    document.write_text(document.read_text() + "\n")
    assert knowledge.load(folder).verdict("a", "2024-06") is Verdict.PASS


def test_an_index_without_one_of_the_documents_is_ignored(folder: Path, index: Path) -> None:
    mark(index)
    (folder / "more").mkdir()
    (folder / "cpu" / "matrix.json").rename(folder / "more" / "matrix.json")
    assert knowledge.load(folder).verdict("a", "2024-06") is Verdict.PASS


def test_an_index_of_another_version_is_ignored(folder: Path, index: Path) -> None:
    mark(index)
    changed(index, schema=answer_index.SCHEMA + 1)
    assert knowledge.load(folder).verdict("a", "2024-06") is Verdict.PASS


def test_a_damaged_index_is_refused_with_the_remedy(folder: Path, index: Path) -> None:
    changed(index, texts=None)
    with pytest.raises(UserError, match=r"texts: .*; run ftmatrix report .* --index"):
        knowledge.load(folder)
