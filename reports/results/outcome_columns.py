"""The columns of ``outcomes.parquet``.

Those of ``COLUMNS``, with the pins of the six packages; ``failed_checks``, a list of check names; each option of the
option space under its own name, null if it does not apply to the case; and the columns of ``WHOLE``.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from cases.space.options import Options
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from matrix.run.outcome import Outcome, Scalar, SetRecord

TEXT: Final = pa.string()
COLUMNS: Final[Mapping[str, pa.DataType]] = {
    "set": TEXT,
    "case": TEXT,
    "group": TEXT,
    "verdict": TEXT,
    "phase": TEXT,
    "reason": TEXT,
    "error": TEXT,
    "message": TEXT,
    "device": TEXT,
    "hardware": TEXT,
    "python": TEXT,
    **dict.fromkeys(PACKAGES, TEXT),
    "torch_backend": TEXT,
    "lock": TEXT,
    "code": TEXT,
    "attempt": pa.int64(),
    "repeat": pa.int64(),
    "started": pa.timestamp("us", tz="UTC"),
    "seconds": pa.float64(),
}
FAILED_CHECKS: Final = "failed_checks"
OPTIONS, OUTCOME = "options", "outcome"
# Columns with values that many outcomes share, from which a reader builds a grid.
SHARED: Final = frozenset(
    ("set", "case", "group", "why", OPTIONS, "verdict", "reason", "lock", "code", "modules", "hardware")
)
# What a reader needs beside COLUMNS, and the outcome without SHARED as JSON. Tables of older versions lack these.
WHOLE: Final[Mapping[str, pa.DataType]] = {
    "why": TEXT,
    "modules": TEXT,
    "has_facts": pa.bool_(),
    OPTIONS: TEXT,
    OUTCOME: TEXT,
}
OPTION_TYPES: Final = {bool: pa.bool_(), int: pa.int64(), str: TEXT}


def schema_of(options: Iterable[Mapping[str, Scalar]]) -> pa.Schema:
    """Return the schema of a table: option columns are those of the option space, then those only outcomes know.

    An option whose values are not all of its type is a column of text, and so is one that this version does not know.
    """
    values: dict[str, set[type]] = {}
    for stated in {id(each): each for each in options}.values():  # many outcomes share one mapping
        for name, value in stated.items():
            values.setdefault(name, set()).add(type(value))
    known = {field.name: type(field.default) for field in fields(Options)}
    columns = {name: OPTION_TYPES[kind] if values.get(name, set()) <= {kind} else TEXT for name, kind in known.items()}
    others = {name: TEXT for name in values if name not in known}
    named = {**COLUMNS, FAILED_CHECKS: pa.list_(TEXT), **columns, **others, **WHOLE}
    return pa.schema(list(named.items()))


def option_names(schema: pa.Schema) -> list[str]:
    """Return the names of the option columns of a table."""
    names: list[str] = schema.names
    return [name for name in names[names.index(FAILED_CHECKS) + 1 :] if name not in WHOLE]


def table_of(outcomes: Sequence[Outcome], records: Mapping[str, SetRecord], schema: pa.Schema) -> pa.Table:
    """Return one row per outcome, in the given order."""
    rows = [row(each, records.get(each.set)) for each in outcomes]
    columns: dict[str, list[Any]] = {name: [each[name] for each in rows] for name in (*COLUMNS, *WHOLE)}
    columns[FAILED_CHECKS] = [[check.name for check in each.checks if not check.ok] for each in outcomes]
    for name in option_names(schema):
        values = [each.options.get(name) for each in outcomes]
        columns[name] = values if schema.field(name).type != TEXT else [*map(text, values)]
    return pa.table([pa.array(columns[each.name], type=each.type) for each in schema], schema=schema)


def text(value: Scalar | None) -> str | None:
    return None if value is None else str(value)


def row(outcome: Outcome, record: SetRecord | None) -> dict[str, Any]:
    """Return the values of ``COLUMNS`` and ``WHOLE`` for an outcome; None where nothing is known."""
    error = outcome.error
    pins = record.pins if record is not None else {}
    return {
        "set": outcome.set,
        "case": outcome.case,
        "group": outcome.group,
        "verdict": outcome.verdict.value,
        "phase": outcome.phase.value if outcome.phase is not None else None,
        "reason": outcome.reason or None,
        "error": error.type if error is not None else None,
        "message": error.message if error is not None else None,
        "device": outcome.hardware.partition(":")[0] or None,
        "hardware": outcome.hardware or None,
        "python": record.python if record is not None else None,
        **{name: pins.get(name) for name in PACKAGES},
        "torch_backend": (record.torch_backend or None) if record is not None else None,
        "lock": outcome.lock or None,
        "code": outcome.code or None,
        "attempt": outcome.attempt,
        "repeat": outcome.repeat,
        "started": outcome.started,
        "seconds": outcome.seconds,
        "why": outcome.why,
        "modules": outcome.modules or None,
        "has_facts": bool(outcome.facts),
        OPTIONS: json.dumps(outcome.options),
        OUTCOME: whole_text(outcome, left_out=SHARED),
    }


def whole_text(outcome: Outcome, left_out: AbstractSet[str] = frozenset()) -> str:
    """Return an outcome as JSON without default values, but with the schema that its values follow."""
    values = outcome.model_dump_json(by_alias=True, exclude_defaults=True, exclude={*left_out, "schema_"})
    return f'{{"schema":{outcome.schema_},{values[1:]}'
