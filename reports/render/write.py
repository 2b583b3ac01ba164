"""Writes every report of a run into a folder."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import UserError
from reports.answers.overview import overview
from reports.render.junit import junit
from reports.render.markdown import markdown
from reports.render.page import page
from reports.results.document import document, dumped
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.run.outcome import Outcome, RunRecord, SetRecord
    from reports.answers.overview import Overview


def render(
    record: RunRecord,
    sets: Iterable[SetRecord],
    outcomes: Iterable[Outcome],
    directory: Path,
    *,
    evidence: Path | None = None,
    now: datetime | None = None,
    known: Overview | None = None,
) -> Path:
    """Write ``index.html``, ``matrix.json``, ``matrix.md`` and ``junit.xml``; the path of the page.

    Evidence files are looked for in ``evidence``, the run's folder; without it, in ``directory``. ``known`` is what the
    results mean, if that was found out already.

    Raises:
        UserError: the folder cannot be written, or an outcome's set is not among the sets.
    """
    generated = now or datetime.now(UTC)
    matrix = grid(record, sets, outcomes)
    known = known or overview(record, matrix)
    compared = known.devices if known.devices.pairs else None
    texts = {
        "matrix.json": dumped(document(record, matrix, generated=generated, devices=compared)),
        "matrix.md": markdown(record, matrix, known, generated=generated),
        "junit.xml": junit(matrix),
        "index.html": page(record, matrix, known, generated=generated, evidence=way(directory, evidence)),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(directory / name, text)
    except OSError as error:
        raise UserError(f"{directory}: cannot write the report ({error.strerror}); choose another folder") from None
    return directory / "index.html"


def way(directory: Path, evidence: Path | None) -> str:
    """From the page to the evidence, as a relative path; empty when they share a folder."""
    relative = "." if evidence is None else Path(os.path.relpath(evidence, directory)).as_posix()
    return "" if relative == "." else relative


def write_whole(path: Path, text: str) -> None:
    """Whoever reads the file sees the old one or the new one, never half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
