"""The ends of the log files of cells that are not green.

A run directory keeps the files, scrubbed. Published results keep shorter ends of the red cells in ``logs.json.gz``, if
their run still had the files when it was published.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict

from cases.space.verdict import RED
from matrix import documents
from matrix.errors import UserError
from reports.results.outcome_rows import OutcomeRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from matrix.run.outcome import Outcome
    from reports.results.outcome_rows import AnyOutcome

FILE: Final = "logs.json.gz"
SCHEMA: Final = 1
LONGEST: Final = 8_000  # characters of one file: the last hundred lines or so
LONGEST_PUBLISHED: Final = 1_500  # a checkout carries these for every red cell
BYTES_PER_CHARACTER: Final = 4  # at most, in UTF-8


class PublishedLogs(BaseModel):
    """The content of ``logs.json.gz``: by cell, the end of each log file by its kind."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA
    cells: dict[str, dict[str, str]] = {}


def log_ends(row: AnyOutcome, outcome: Outcome) -> Mapping[str, str]:
    """Return the end of each log file of a cell by its kind, as far as its run or its published results have them.

    Raises:
        UserError: the published logs are damaged, or a newer version wrote them.
    """
    folder = row.source.folder if isinstance(row, OutcomeRow) else None
    if folder is None:
        return {}
    return dict(each_end(outcome, folder, LONGEST)) or published_ends(folder).get(outcome.cell, {})


def each_end(outcome: Outcome, folder: Path, longest: int) -> Iterator[tuple[str, str]]:
    inside = folder.resolve()
    for kind, name in outcome.evidence.items():
        path = (folder / name).resolve()
        if path.is_relative_to(inside) and path.is_file():  # a stored path may name any file of the machine
            yield kind, end_of(path, longest)


def end_of(path: Path, longest: int = LONGEST) -> str:
    """Return the end of a file in whole lines; a longer one says that something is left out."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - longest * BYTES_PER_CHARACTER, 0))
        text = file.read().decode(errors="replace")
    if size <= longest * BYTES_PER_CHARACTER and len(text) <= longest:
        return text
    text = text[-longest:]
    return f"… {path.name} begins earlier …\n{text[text.find(chr(10)) + 1 :]}"


@lru_cache(maxsize=8)
def published_ends(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """Return the ends of logs that a folder of published results keeps, by cell and kind.

    Raises:
        UserError: the file is damaged, or a newer version wrote it.
    """
    path = folder / FILE
    found = documents.read_or_empty(PublishedLogs, path, what="published logs", instead="folder")
    if found.schema_version > SCHEMA:
        raise UserError(f"{path}: schema {found.schema_version} is newer than {SCHEMA}; update ftmatrix")
    return found.cells


def publishable(outcomes: Iterable[Outcome], folder: Path) -> bytes | None:
    """Return ``logs.json.gz`` of the outcomes of a run directory; None if it keeps no log file of a red cell.

    Raises:
        UserError: the folder has published logs that cannot be read.
    """
    red = sorted((each for each in outcomes if each.verdict in RED), key=lambda each: each.cell)
    cells = {each.cell: ends for each in red if (ends := publishable_ends(each, folder))}
    return documents.compressed([PublishedLogs(cells=cells).model_dump_json()]) if cells else None


def publishable_ends(outcome: Outcome, folder: Path) -> dict[str, str]:
    found = each_end(outcome, folder, LONGEST_PUBLISHED)
    return {kind: text for kind, text in found if text.strip()} or {**published_ends(folder).get(outcome.cell, {})}
