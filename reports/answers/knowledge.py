"""All that was published, as one grid: what the commands that answer questions look things up in.

Every ``matrix.json`` below a folder is read. Results of a CPU and of GPUs are never mixed: a grid is of one device.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from matrix.errors import UserError
from reports import data
from reports.grid import grid

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from matrix.outcome import Outcome, SetRecord
    from reports.data import MatrixDocument
    from reports.grid import Grid

PUBLISHED: Final = Path(__file__).parents[1] / "published"


def load(folder: Path = PUBLISHED, *, device: str = "cpu") -> Grid:
    """What was measured on one kind of device (``cpu`` or ``cuda``).

    Where documents have the same cell, the newest case code counts, with all its repeats.

    Raises:
        UserError: there is no result of that device, or a document cannot be read.
    """
    found = [each for each in documents(folder) if each.device == device]
    if not found:
        raise UserError(f"{folder}: holds no matrix.json measured on {device}; give a folder of published results")
    return of(found)


def by_device(folder: Path = PUBLISHED, *, only: Container[str] | None = None) -> dict[str, Grid]:
    """What was measured, on each kind of device; ``only`` these cases, which is quicker.

    Raises:
        UserError: there is no result at all, or a document cannot be read.
    """
    found: dict[str, list[MatrixDocument]] = {}
    for each in documents(folder, only=only):
        found.setdefault(each.device, []).append(each)
    if not found:
        raise UserError(f"{folder}: holds no matrix.json; give a folder of published results")
    return {device: of(each) for device, each in sorted(found.items())}


def of(found: Sequence[MatrixDocument]) -> Grid:
    """The grid of documents of one device."""
    newest = max(found, key=lambda each: each.run.started)
    nothing_planned = newest.run.model_copy(update={"planned": ()})
    return grid(nothing_planned, columns(found), latest(found))


def documents(folder: Path, *, only: Container[str] | None = None) -> Iterator[MatrixDocument]:
    for path in sorted(folder.rglob("matrix.json")):
        yield data.validated(trimmed(data.loaded(path), only), path)


def trimmed(document: dict[str, Any], only: Container[str] | None = None) -> dict[str, Any]:
    """Without what no answer looks at, which is most of it: an answer should not wait for a second."""
    cells = document.get("cells")
    if only is not None and isinstance(cells, list):
        cells = [cell for cell in cells if isinstance(cell, dict) and cell.get("case") in only]
        document["cells"] = cells
    for cell in cells if isinstance(cells, list) else ():
        if isinstance(cell, dict) and cell.get("verdict") in {"pass", "skip"}:
            cell.update(checks=(), metrics={}, facts={})
    return document


def columns(found: Iterable[MatrixDocument]) -> tuple[SetRecord, ...]:
    """Each set once, as it was met last; one that was installed before one that was not."""
    met = sorted(
        ((document.run.started, column) for document in found for column in document.sets),
        key=lambda each: (bool(each[1].lock) and not each[1].blocked, each[0]),
    )
    return tuple({column.key: column for _, column in met}.values())


def latest(found: Iterable[MatrixDocument]) -> Iterator[Outcome]:
    """The outcomes of every cell that its newest code gave, repeats of several documents counted on."""
    cells: dict[tuple[str, str], list[Outcome]] = {}
    for document in found:
        for outcome in document.cells:
            cells.setdefault((outcome.case, outcome.set), []).append(outcome)
    for outcomes in cells.values():
        code = max(outcomes, key=lambda each: each.started).code
        counted = (each for each in outcomes if each.code == code)
        yield from (each.model_copy(update={"repeat": number}) for number, each in enumerate(counted, start=1))
