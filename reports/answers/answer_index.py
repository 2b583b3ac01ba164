"""An index of published results: every outcome that answers use, merged by device, in one small file.

The documents below a folder hold each run as it was. Merging them takes longer than an answer should, so that
``ftmatrix report FOLDER --index`` stores the result. It counts only while the documents are those that it names.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from matrix.errors import UserError
from matrix.run.outcome import Outcome, RunRecord, SetRecord, Stored
from reports.results import document as data
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path

    from reports.results.grid import Grid

SCHEMA: Final = 1
FILE: Final = "index.json.gz"
KEPT: Final = 4
# Texts that many cells share; the index has each once.
SHARED: Final = ("why", "group", "lock", "code", "modules", "hardware")
OUTCOMES: Final = TypeAdapter(tuple[Outcome, ...])


class MergedResults(NamedTuple):
    """The results of one kind of device: the newest run, and every set and outcome that counts."""

    run: RunRecord
    sets: tuple[SetRecord, ...]
    outcomes: tuple[Outcome, ...]


class DeviceIndex(Stored):
    """The merged results of one kind of device. A cell is an outcome whose shared texts are numbers."""

    run: RunRecord
    sets: tuple[SetRecord, ...]
    cells: list[dict[str, Any]]


class AnswerIndex(Stored):
    """The results of every device, and the documents that they were merged from."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    sources: dict[str, str] = Field(description="SHA-256 of each document by its path below the folder")
    texts: tuple[str, ...] = Field(description="texts that cells name by their number")
    devices: dict[str, DeviceIndex]

    def grid(self, device: str, only: Container[str] | None = None) -> Grid:
        """Return the grid of a device; ``only`` restricts it to some cases."""
        index = self.devices[device]
        cells = (cell for cell in index.cells if only is None or cell["case"] in only)
        return grid(index.run, index.sets, OUTCOMES.validate_python([self.with_texts(cell) for cell in cells]))

    def with_texts(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        return {**cell, **{name: self.texts[cell[name]] for name in SHARED if name in cell}}


def digests(contents: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Return the SHA-256 of documents by their path."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in contents}


def index_of(
    merged: Mapping[str, tuple[RunRecord, Iterable[SetRecord], Iterable[Outcome]]], sources: dict[str, str]
) -> bytes:
    """Return the content of the index of the merged results of each device."""
    numbers: dict[str, int] = {}
    devices = {
        device: DeviceIndex(run=run, sets=tuple(sets), cells=[row(each, numbers) for each in outcomes])
        for device, (run, sets, outcomes) in merged.items()
    }
    index = AnswerIndex(sources=sources, texts=tuple(numbers), devices=devices)
    return data.compressed(index.model_dump_json(by_alias=True) + "\n")


def row(outcome: Outcome, numbers: dict[str, int]) -> dict[str, Any]:
    """Return an outcome without defaults, with a number for each shared text."""
    cell: dict[str, Any] = outcome.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    numbered: dict[str, Any] = {name: numbers.setdefault(cell[name], len(numbers)) for name in SHARED if name in cell}
    return {**cell, **numbered}


@lru_cache(maxsize=KEPT)
def parsed(content: bytes, path: Path) -> AnswerIndex | None:
    """Return the index that a file holds; None if another version of ftmatrix wrote it.

    Raises:
        UserError: the file is damaged.
    """
    raw = data.parsed(content, path)
    if raw.get("schema") != SCHEMA:
        return None
    try:
        return AnswerIndex.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {data.first_problem(error)}; run ftmatrix report {path.parent} --index") from None
