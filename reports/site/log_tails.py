"""The ends of the log files that a run directory keeps of cells that are not green.

The run scrubbed them when it stored them. Published results have no log files.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from reports.results.outcome_rows import OutcomeRow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.run.outcome import Outcome
    from reports.results.outcome_rows import AnyOutcome

LONGEST: Final = 8_000  # characters of one file: the last hundred lines or so
BYTES_PER_CHARACTER: Final = 4  # at most, in UTF-8


def tails(row: AnyOutcome, outcome: Outcome) -> dict[str, str]:
    """Return the end of each log file of a cell by its kind, as far as the files are there."""
    folder = row.source.folder if isinstance(row, OutcomeRow) else None
    return {} if folder is None else dict(each_tail(outcome, folder))


def each_tail(outcome: Outcome, folder: Path) -> Iterator[tuple[str, str]]:
    inside = folder.resolve()
    for kind, name in outcome.evidence.items():
        path = (folder / name).resolve()
        if path.is_relative_to(inside) and path.is_file():  # a stored path may name any file of the machine
            yield kind, tail(path)


def tail(path: Path) -> str:
    """Return the end of a file in whole lines; a longer one says that something is left out."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - LONGEST * BYTES_PER_CHARACTER, 0))
        text = file.read().decode(errors="replace")
    if size <= LONGEST * BYTES_PER_CHARACTER and len(text) <= LONGEST:
        return text
    text = text[-LONGEST:]
    return f"… {path.name} begins earlier …\n{text[text.find(chr(10)) + 1 :]}"
