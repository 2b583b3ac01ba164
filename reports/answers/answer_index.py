"""An index of published results: every cell that answers use, merged by device, in one small file.

The files below a folder hold each run as it was. Merging them takes longer than an answer should, so that
``ftmatrix report FOLDER --index`` stores the result. It counts only while the files are those that it names. An
outcome is read from it at its first use: most answers need the verdicts of all cells, but the outcomes of few.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, TypeAdapter, ValidationError

from cases.space.verdict import Verdict
from matrix.errors import UserError
from matrix.run.outcome import OptionValues, Outcome, SetRecord, Stored
from reports.results import document as data
from reports.results.grid import Grid, Group

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from pathlib import Path

SCHEMA: Final = 1
FILE: Final = "index.json.gz"
KEPT: Final = 4
# Values that many cells share; the index has each once.
SHARED: Final = ("why", "group", "lock", "code", "modules", "hardware", "options")
OPTIONS: Final = TypeAdapter(OptionValues)


class DeviceIndex(Stored):
    """The merged results of one kind of device. A cell is an outcome whose shared values are numbers."""

    sets: tuple[SetRecord, ...]
    groups: tuple[tuple[str, tuple[str, ...]], ...] = Field(description="name and cases, in order")
    cells: list[dict[str, Any]]
    repeats: list[tuple[str, str, tuple[Verdict, ...]]] = Field(description="case, set and verdicts, if several")


class AnswerIndex(Stored):
    """The results of every device, and the files that they were merged from."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    sources: dict[str, str] = Field(description="SHA-256 of each file by its path below the folder")
    shared: list[Any] = Field(description="texts and options that cells name by their number")
    devices: dict[str, DeviceIndex]

    def grid(self, device: str, only: Container[str] | None = None) -> Grid:
        """Return the grid of a device; ``only`` restricts it to some cases."""
        index = self.devices[device]
        cells = {(row["case"], row["set"]): row for row in index.cells if only is None or row["case"] in only}
        verdicts = {cell: Verdict(row["verdict"]) for cell, row in cells.items()}
        options = {
            number: OPTIONS.validate_python(self.shared[number]) for number in {*map(options_of, cells.values())}
        }
        named = ((name, tuple(each for each in cases if only is None or each in only)) for name, cases in index.groups)
        repeats = {cell: (verdict,) for cell, verdict in verdicts.items()}
        return Grid(
            sets=index.sets,
            groups=tuple(Group(name=name, cases=cases) for name, cases in named if cases),
            cells=IndexedCells(cells, self.shared),
            verdicts=verdicts,
            options={cell: options[options_of(row)] for cell, row in cells.items()},
            planned=frozenset(),
            repeats=repeats | {(case, key): each for case, key, each in index.repeats if (case, key) in cells},
        )


def options_of(row: Mapping[str, Any]) -> int:
    number: int = row["options"]
    return number


class IndexedCells(Mapping[tuple[str, str], Outcome]):
    """The outcomes by case and set. Each is read at its first use."""

    def __init__(self, rows: Mapping[tuple[str, str], Mapping[str, Any]], shared: list[Any]) -> None:
        self.rows = rows
        self.shared = shared
        self.read: dict[tuple[str, str], Outcome] = {}

    def __getitem__(self, cell: tuple[str, str]) -> Outcome:
        if cell not in self.read:
            row = self.rows[cell]
            shared = {name: self.shared[row[name]] for name in SHARED if name in row}
            self.read[cell] = Outcome.model_validate({**row, **shared})
        return self.read[cell]

    def __contains__(self, cell: object) -> bool:
        return cell in self.rows  # without reading it

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def digests(contents: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Return the SHA-256 of files by their path."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in contents}


def index_of(grids: Mapping[str, Grid], sources: dict[str, str]) -> bytes:
    """Return the content of the index of each device's grid."""
    shared = SharedValues()
    devices = {
        device: DeviceIndex(
            sets=matrix.sets,
            groups=tuple((group.name, group.cases) for group in matrix.groups),
            cells=[row(bare(outcome), shared) for outcome in matrix.cells.values()],
            repeats=[(case, key, each) for (case, key), each in matrix.repeats.items() if len(each) > 1],
        )
        for device, matrix in grids.items()
    }
    index = AnswerIndex(sources=sources, shared=shared.values, devices=devices)
    return data.compressed(index.model_dump_json(by_alias=True) + "\n")


class SharedValues:
    """Numbers values, equal ones alike."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.numbers: dict[str, int] = {}

    def number(self, value: Any) -> int:
        found = self.numbers.setdefault(repr(value), len(self.values))
        if found == len(self.values):
            self.values.append(value)
        return found


def bare(outcome: Outcome) -> Outcome:
    """Return an outcome without what no answer uses of it."""
    if outcome.verdict not in (Verdict.PASS, Verdict.SKIP):
        return outcome
    return outcome.model_copy(update={"checks": (), "metrics": {}, "facts": {}})


def row(outcome: Outcome, shared: SharedValues) -> dict[str, Any]:
    """Return an outcome without defaults, with a number for each shared value."""
    cell: dict[str, Any] = outcome.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {**cell, **{name: shared.number(cell[name]) for name in SHARED if name in cell}}


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
