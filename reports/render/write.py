"""Writes the reports of a run into its directory, or its results into a folder of published results."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from matrix.errors import UserError
from reports.answers.overview import overview
from reports.render.files import write_whole
from reports.render.junit import junit
from reports.render.markdown import markdown
from reports.render.page import page
from reports.results.document import COMPRESSED, PLAIN, compressed, document, dumped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reports.answers.overview import Overview
    from reports.results.document import MatrixDocument
    from reports.results.loading import RunResults

PAGE: Final = "index.html"
SUMMARY: Final = "matrix.md"
OUTCOMES: Final = "outcomes.parquet"


def render(
    results: RunResults,
    directory: Path,
    *,
    evidence: Path | None = None,
    now: datetime | None = None,
    known: Overview | None = None,
) -> Path:
    """Write ``index.html``, ``matrix.json``, ``matrix.md``, ``outcomes.parquet`` and ``junit.xml``.

    ``evidence`` is the folder of the log files that the page links to, ``directory`` if it is not given. ``known`` is
    the interpretation of the results, computed here if it is not given.

    Returns:
        The path of the page.

    Raises:
        UserError: the folder cannot be written.
    """
    record, matrix, generated = results.record, results.matrix, now or datetime.now(UTC)
    known = known or overview(record, matrix)
    contents: dict[str, str | bytes] = {
        PLAIN: dumped(document(record, matrix, generated=generated, devices=known.compared)),
        SUMMARY: markdown(record, matrix, known, generated=generated),
        OUTCOMES: parquet(results),
        "junit.xml": junit(matrix),
        PAGE: page(record, matrix, known, generated=generated, evidence=evidence_path(directory, evidence)),
    }
    write_all(directory, contents)
    return directory / PAGE


def publish(results: RunResults, folder: Path, *, now: datetime | None = None, known: Overview | None = None) -> Path:
    """Write a run into a folder of published results; return the path of its ``matrix.md``.

    The folder gets ``matrix.json.gz``, from which ``ftmatrix report FOLDER --out OTHER`` renders the page,
    ``matrix.md`` and ``outcomes.parquet``. Log files stay in the run directory, so outcomes lose their links to them.

    Raises:
        UserError: the folder cannot be written.
    """
    record, generated = results.record, now or datetime.now(UTC)
    known = known or overview(record, results.matrix)
    contents: dict[str, str | bytes] = {
        COMPRESSED: compact(results, generated=generated, known=known),
        SUMMARY: markdown(record, results.matrix, known, generated=generated),
        OUTCOMES: parquet(results),
    }
    write_all(folder, contents)
    (folder / PLAIN).unlink(missing_ok=True)
    return folder / SUMMARY


def compact(results: RunResults, *, generated: datetime, known: Overview | None = None) -> bytes:
    """Return ``matrix.json.gz`` of a run, without the links to its log files."""
    bare = {cell: outcome.model_copy(update={"evidence": {}}) for cell, outcome in results.matrix.cells.items()}
    matrix, devices = replace(results.matrix, cells=bare), known.compared if known is not None else None
    return compressed(dumped(document(results.record, matrix, generated=generated, devices=devices)))


def parquet(results: RunResults) -> bytes:
    from reports.results import frame  # pandas takes a second to import

    return frame.parquet(results.outcomes, results.sets)


def write_all(folder: Path, contents: Mapping[str, str | bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise UserError(f"{folder}: cannot write the report ({error.strerror}); choose another folder") from None


def evidence_path(directory: Path, evidence: Path | None) -> str:
    """Return the relative path from the page to the log files; empty if they share a folder."""
    relative = "." if evidence is None else Path(os.path.relpath(evidence, directory)).as_posix()
    return "" if relative == "." else relative


def write_document(matrix: MatrixDocument, folder: Path) -> None:
    """Write ``matrix.json.gz`` into a folder of published results, in place of an uncompressed one."""
    write_whole(folder / COMPRESSED, compressed(dumped(matrix)))
    (folder / PLAIN).unlink(missing_ok=True)
