"""Reads the alerts of a night, which ``ftmatrix notify`` sends, from a JSON document.

Its JSON Schema is ``reports/schema/alerts.schema.json``. Reading masks secrets and removes control characters, so that
no later step meets them.
"""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json

from matrix.errors import UserError
from matrix.keys import CellKey
from matrix.run.secrets import data_without_secrets
from matrix.versions.moved_packages import MovedPackage
from reports.alerts.alert import Alert, AlertKind, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA: Final = 2  # 2 added the red cells
SCHEMA_FILE: Final = Path(__file__).parents[1] / "schema" / "alerts.schema.json"
NO_CELLS: Final[frozenset[CellKey]] = frozenset()
NEEDED: Final = "give a document of alerts"


class AlertRow(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class MovedRow(AlertRow):
    name: str
    old: str = ""
    new: str = ""


class CellRow(AlertRow):
    set: str = Field(min_length=1)
    case: str = Field(min_length=1)


class AlertRecord(AlertRow):
    """One alert, as stored."""

    kind: AlertKind
    device: str = Field(min_length=1)
    title: str = Field(min_length=1)
    cause: str
    cause_id: str = Field(default="", description="id of the signature or finding; empty for an unexplained failure")
    gist: str = Field(default="", description="first line of the error; identifies an unexplained failure")
    phase: str = Field(default="", description="the phase that failed")
    moved: tuple[MovedRow, ...] = Field(default=(), description="packages whose release changed")
    cells: tuple[CellRow, ...] = ()
    first_seen: date = Field(description="the first night with this cause")
    body: str = Field(default="", description="details, in Markdown")

    @classmethod
    def of(cls, alert: Alert) -> AlertRecord:
        """Return the record that stores an alert."""
        values = {name: getattr(alert, name) for name in cls.model_fields}
        moved = [MovedRow(name=each.name, old=each.old, new=each.new) for each in alert.moved]
        cells = [CellRow(set=each.set, case=each.case) for each in alert.cells]
        return cls(**{**values, "moved": moved, "cells": cells})

    @property
    def alert(self) -> Alert:
        values = {name: getattr(self, name) for name in type(self).model_fields}
        moved = tuple(MovedPackage(**each.model_dump()) for each in self.moved)
        cells = tuple(dict.fromkeys(CellKey(each.set, each.case) for each in self.cells))
        return Alert(**{**values, "moved": moved, "cells": cells})


class CellsRow(AlertRow):
    """Cells of one set on a device."""

    device: str = Field(min_length=1)
    set: str = Field(min_length=1)
    cases: tuple[str, ...]

    @property
    def cells(self) -> frozenset[CellKey]:
        return frozenset(CellKey(self.set, each) for each in self.cases)


class AlertDocument(AlertRow):
    """The alerts of one night, and the cells that were green."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    night: date = Field(description="day on which the night's run started")
    alerts: tuple[AlertRecord, ...]
    green: tuple[CellsRow, ...] = Field(
        default=(), description="all cells that were green, changed or not; an issue closes when all of its cells are"
    )
    red: tuple[CellsRow, ...] = Field(
        default=(),
        description="all other cells that ran, changed or not; a cell in neither list did not run",
    )

    def green_cells(self, device: str) -> frozenset[CellKey]:
        """The cells that were green on a device."""
        return cells_of(self.green, device)

    def cells_that_ran(self, device: str) -> frozenset[CellKey]:
        """The cells that ran on a device; none if the document does not say which did."""
        red = cells_of(self.red, device)
        return red | self.green_cells(device) if self.schema_ == SCHEMA else NO_CELLS


def cells_of(rows: Iterable[CellsRow], device: str) -> frozenset[CellKey]:
    return NO_CELLS.union(*(each.cells for each in rows if each.device == device))


def read(path: Path, *, secrets: frozenset[str]) -> AlertDocument:
    """Read a document, without the secrets.

    Raises:
        UserError: the file is missing, is no such document, or a newer harness wrote it.
    """
    try:
        data = from_json(path.read_bytes(), allow_inf_nan=False)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {NEEDED}") from None
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); {NEEDED}") from None
    return validated(clean(data, secrets), str(path))


def validated(data: Any, place: str) -> AlertDocument:
    """Validate data as a document.

    Raises:
        UserError: the data is no such document, or a newer harness wrote it.
    """
    schema = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise UserError(f"{place}: no whole number under 'schema'; {NEEDED}")
    if schema > SCHEMA:
        raise UserError(f"{place}: schema {schema} is newer than {SCHEMA}, which this ftmatrix reads; update ftmatrix")
    try:
        document = AlertDocument.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{place}: {first_problem(error)}; {NEEDED}") from None
    anonymous = next((each for each in document.alerts if not (each.cause_id or each.gist)), None)
    if anonymous:
        raise UserError(f"{place}: alert {anonymous.title!r} has neither cause_id nor gist; give one of them")
    return document


def first_problem(error: ValidationError) -> str:
    """Return the place and the message of the first problem, e.g. ``alerts[3].kind: Input should be ...``."""
    first = error.errors(include_url=False)[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    return f"{place or 'document'}: {first['msg'].removeprefix('Value error, ')}"


def clean(data: Any, secrets: frozenset[str]) -> Any:
    """Return the same data with secrets masked and without control characters, at any depth."""
    return printable_data(data_without_secrets(data, secrets))


def printable_data(data: Any) -> Any:
    if isinstance(data, str):
        return printable(data)
    if isinstance(data, dict):
        return {printable_data(name): printable_data(each) for name, each in data.items()}
    if isinstance(data, list):
        return [printable_data(each) for each in data]
    return data


def stored(document: AlertDocument) -> dict[str, Any]:
    """Return the data of a document, as JSON stores it."""
    return document.model_dump(mode="json", by_alias=True)


class AlertSchema(GenerateJsonSchema):
    """Promises to name the dialect, and every key that a writer always writes."""

    def generate(self, schema: Any, mode: Any = "validation") -> dict[str, Any]:
        return {"$schema": self.schema_dialect, **super().generate(schema, mode)}


def json_schema() -> str:
    schema = AlertDocument.model_json_schema(by_alias=True, schema_generator=AlertSchema)
    return json.dumps(schema, indent=2) + "\n"
