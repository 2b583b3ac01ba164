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
from reports.results import log_ends
from reports.results.document import COMPRESSED, PLAIN, compressed, document, dumped
from reports.results.outcome_rows import last_attempts, whole
from reports.results.stored_results import FILE as OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matrix.run.outcome import Outcome
    from reports.answers.overview import Overview
    from reports.results.loading import RunResults

PAGE: Final = "index.html"
SUMMARY: Final = "matrix.md"


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
        OUTCOMES: parquet(results, generated=generated, known=known),
        "junit.xml": junit(matrix),
        PAGE: page(record, matrix, known, generated=generated, evidence=evidence_path(directory, evidence)),
    }
    write_all(directory, contents)
    return directory / PAGE


def publish(
    results: RunResults,
    folder: Path,
    *,
    evidence: Path | None = None,
    now: datetime | None = None,
    known: Overview | None = None,
) -> Path:
    """Write a run into a folder of published results, as ``outcomes.parquet``; return its path.

    ``ftmatrix report FOLDER --out OTHER`` renders the page and the other files from it. Log files stay in the run
    directory, so outcomes lose their links to them, and ``logs.json.gz`` gets the ends of those of red cells, from
    the folder ``evidence``. Of several attempts of a cell, the last one is published.

    Raises:
        UserError: the folder cannot be written.
    """
    known = known or overview(results.record, results.matrix)
    counted = [*map(whole, last_attempts(results.outcomes))]
    bare = replace(results, outcomes=tuple(map(without_links, counted)))
    contents = {OUTCOMES: parquet(bare, generated=now or datetime.now(UTC), known=known)}
    logs = log_ends.publishable(counted, evidence) if evidence is not None else None
    write_all(folder, contents if logs is None else {**contents, log_ends.FILE: logs})
    remove_documents(folder)
    if logs is None:
        (folder / log_ends.FILE).unlink(missing_ok=True)  # of an earlier run
    return folder / OUTCOMES


def summarise(results: RunResults, folder: Path) -> Path:
    """Write ``matrix.md`` of published results beside them; return its path.

    Raises:
        UserError: the folder cannot be written.
    """
    known = overview(results.record, results.matrix)
    generated = results.generated or results.record.started
    write_all(folder, {SUMMARY: markdown(results.record, results.matrix, known, generated=generated)})
    return folder / SUMMARY


def without_links(outcome: Outcome) -> Outcome:
    """Return an outcome without the links to its log files."""
    return outcome.model_copy(update={"evidence": {}}) if outcome.evidence else outcome


def remove_documents(folder: Path) -> None:
    """Remove older results of a folder, which would count instead of its ``outcomes.parquet``."""
    for name in (PLAIN, COMPRESSED):
        (folder / name).unlink(missing_ok=True)


def compact(results: RunResults, *, generated: datetime, known: Overview | None = None) -> bytes:
    """Return ``matrix.json.gz`` of a run, without the links to its log files."""
    bare = {cell: without_links(outcome) for cell, outcome in results.matrix.cells.items()}
    matrix, devices = replace(results.matrix, cells=bare), known.compared if known is not None else None
    return compressed(dumped(document(results.record, matrix, generated=generated, devices=devices)))


def parquet(results: RunResults, *, generated: datetime, known: Overview | None = None) -> bytes:
    """Return ``outcomes.parquet`` of a run: every outcome, the cells of the matrix row by row."""
    from reports.results import outcome_table  # importing pyarrow takes a moment

    devices = known.compared if known is not None else None
    header = document(results.record, results.matrix, generated=generated, devices=devices)
    order = {case: place for place, case in enumerate(results.matrix.cases)}
    columns = {column.key: place for place, column in enumerate(results.matrix.sets)}
    return outcome_table.content(
        header, sorted(results.outcomes, key=lambda each: (order[each.case], columns[each.set]))
    )


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


def write_results(results: RunResults, folder: Path, *, generated: datetime) -> None:
    """Write ``outcomes.parquet`` into a folder of published results, in place of older files.

    Raises:
        OSError: the folder cannot be written.
    """
    counted = replace(results, outcomes=tuple(map(whole, last_attempts(results.outcomes))))
    write_whole(folder / OUTCOMES, parquet(counted, generated=generated))
    remove_documents(folder)
