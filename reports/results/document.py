"""A run as one JSON document: ``matrix.json``, or ``matrix.json.gz`` of a baseline and of older published results.

Its JSON Schema is ``schema/matrix.schema.json``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json

from cases.space.verdict import Verdict
from matrix import documents
from matrix.errors import UserError
from matrix.run.outcome import NOT_FINITE, CaseId, Outcome, RunRecord, SetRecord, Stored
from reports.results.comparison import Comparison
from reports.results.grid import Grid, grid

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema


SCHEMA: Final = 6
PLAIN: Final = "matrix.json"
COMPRESSED: Final = "matrix.json.gz"
GZIP: Final = b"\x1f\x8b"
WRITTEN: Final = "give a matrix.json written by ftmatrix"
SCHEMA_FILE: Final = Path(__file__).parents[1] / "schema" / "matrix.schema.json"


class FlakyCell(Stored):
    """The number of repeats of one cell with each verdict."""

    set: str
    case: CaseId
    verdicts: dict[Verdict, int]


class MatrixDocument(Stored):
    """A run: the last attempt of every cell, with the version sets and the machine."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    generated: datetime
    harness: str
    device: str
    hardware: str
    run: RunRecord
    sets: tuple[SetRecord, ...]
    cells: tuple[Outcome, ...]
    flaky: tuple[FlakyCell, ...] = Field(default=(), description="cells whose repeats disagree")
    devices: Comparison | None = Field(default=None, description="comparison of CPU and GPU results, if both exist")


class DamagedDocumentError(UserError):
    """A file that is no document, or only a part of one."""

    def __init__(self, path: Path, problem: str, advice: str) -> None:
        super().__init__(f"{path}: {problem}; {advice}")
        self.problem = problem


class Schema(GenerateJsonSchema):
    """Generates the schema; JSON has no NaN and no infinity, which are written by name."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        return {"anyOf": [super().float_schema(schema), {"enum": list(NOT_FINITE)}]}


def json_schema() -> str:
    schema = MatrixDocument.model_json_schema(by_alias=True, mode="serialization", schema_generator=Schema)
    return json.dumps({"$schema": Schema.schema_dialect, **schema}, indent=2) + "\n"


def document(
    record: RunRecord, matrix: Grid, *, generated: datetime, devices: Comparison | None = None
) -> MatrixDocument:
    return MatrixDocument(
        generated=generated,
        harness=record.harness,
        device=record.device,
        hardware=record.hardware,
        run=record,
        sets=matrix.sets,
        cells=matrix.outcomes,
        flaky=tuple(FlakyCell(set=key, case=case, verdicts=dict(each)) for (case, key), each in matrix.flaky.items()),
        devices=devices,
    )


def results(matrix: MatrixDocument) -> Grid:
    """Return the grid of a document, with the repeats of its flaky cells."""
    return with_flaky(grid(matrix.run, matrix.sets, matrix.cells), matrix)


def with_flaky(results_grid: Grid, matrix: MatrixDocument) -> Grid:
    """Add the repeats of a document's flaky cells to a grid, which may lack them."""
    repeats = {(each.case, each.set): tuple(Counter(each.verdicts).elements()) for each in matrix.flaky}
    return replace(results_grid, repeats={**results_grid.repeats, **repeats})


def dumped(matrix: MatrixDocument) -> str:
    return matrix.model_dump_json(by_alias=True) + "\n"


def compressed(text: str) -> bytes:
    """Return the text as gzip, with the same bytes on every machine and at every time."""
    return documents.compressed([text])


def locate(folder: Path) -> Path | None:
    """Return the document of a folder, compressed or not; None if it has none.

    Raises:
        UserError: the folder has both.
    """
    paths = [folder / name for name in (PLAIN, COMPRESSED) if (folder / name).exists()]
    if len(paths) > 1:
        raise UserError(f"{folder}: holds both {PLAIN} and {COMPRESSED}; remove the older one")
    return paths[0] if paths else None


def read(path: Path) -> MatrixDocument:
    """Read a document, compressed or not.

    Raises:
        DamagedDocumentError: the file is no such document.
        UserError: the file is missing, or a newer harness wrote it.
    """
    return validated(loaded(path), path)


def validated(data: dict[str, Any], path: Path) -> MatrixDocument:
    """Validate the data of a file as a document.

    Raises:
        DamagedDocumentError: the data is no such document.
        UserError: a newer harness wrote it.
    """
    schema = data.get("schema")
    if not isinstance(schema, int):
        raise DamagedDocumentError(path, "no whole number under 'schema'", WRITTEN)
    if schema > SCHEMA:
        raise UserError(f"{path}: schema {schema} is newer than {SCHEMA}, which this ftmatrix reads; update ftmatrix")
    try:
        return MatrixDocument.model_validate(data)
    except ValidationError as error:
        raise DamagedDocumentError(path, first_problem(error), "render the run again") from None


def loaded(path: Path) -> dict[str, Any]:
    return parsed(content(path), path)


def content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {WRITTEN}") from None


def parsed(content: bytes, path: Path) -> dict[str, Any]:
    """Parse the content of a file, compressed or not.

    Raises:
        DamagedDocumentError: the content is no object in JSON.
    """
    try:
        data = from_json(gzip.decompress(content) if content.startswith(GZIP) else content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DamagedDocumentError(path, f"damaged gzip file ({error})", "publish the run again") from None
    except ValueError as error:
        raise DamagedDocumentError(path, f"not JSON ({error})", "render the run again") from None
    if not isinstance(data, dict):
        raise DamagedDocumentError(path, "expected an object at the top", WRITTEN)
    return data


def first_problem(error: ValidationError) -> str:
    """Return the place and the message of the first problem: ``cells[3].verdict: Input should be ...``."""
    first = error.errors(include_url=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    return f"{place or 'document'}: {first['msg']}"
