"""Outcomes as a pandas data frame, and as ``outcomes.parquet``.

Importing pandas takes a second: commands that answer at once import this module inside the functions that need it.
"""

from __future__ import annotations

import io
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from cases.space.options import Options
from matrix.errors import UserError
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from matrix.run.outcome import Outcome, Scalar, SetRecord

FILE: Final = "outcomes.parquet"
TEXT, COUNT, FLAG, REAL, TIME = "string", "Int64", "boolean", "Float64", "datetime64[us, UTC]"
COLUMNS: Final[Mapping[str, str]] = {
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
    "attempt": COUNT,
    "repeat": COUNT,
    "started": TIME,
    "seconds": REAL,
}
FAILED_CHECKS: Final = "failed_checks"
OPTION_TYPES: Final = {bool: FLAG, int: COUNT, str: TEXT}


def frame(outcomes: Iterable[Outcome], sets: Iterable[SetRecord]) -> pd.DataFrame:
    """Return one row per outcome, in the given order.

    Columns: those of ``COLUMNS``, with the pins of the six packages; ``failed_checks``, a list of check names; and each
    option of the option space under its own name, null if it does not apply to the case.
    """
    listed = tuple(outcomes)
    records = {each.key: each for each in sets}
    rows = [row(outcome, records.get(outcome.set)) for outcome in listed]
    table = {name: pd.Series([each[name] for each in rows], dtype=dtype) for name, dtype in COLUMNS.items()}
    failed = [[check.name for check in outcome.checks if not check.ok] for outcome in listed]
    table[FAILED_CHECKS] = pd.Series(failed, dtype=object)
    return pd.DataFrame(table | options_of([outcome.options for outcome in listed]))


def row(outcome: Outcome, record: SetRecord | None) -> dict[str, Any]:
    """Return the values of ``COLUMNS`` for an outcome; None where nothing is known."""
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
    }


def options_of(stated: Sequence[Mapping[str, Scalar]]) -> dict[str, pd.Series[Any]]:
    """Return a column per option: those of the option space, then those that only the outcomes know."""
    known = {field.name: OPTION_TYPES[type(field.default)] for field in fields(Options)}
    others = {name: TEXT for options in stated for name in options if name not in known}
    return {
        name: option_column([options.get(name) for options in stated], dtype)
        for name, dtype in {**known, **others}.items()
    }


def option_column(values: Sequence[Scalar | None], dtype: str) -> pd.Series[Any]:
    """Return a nullable column; a column of text if a value is not of the option's type."""
    try:
        return pd.Series(values, dtype=dtype)
    except (TypeError, ValueError):  # the options of a newer version may have other values
        return pd.Series([None if value is None else str(value) for value in values], dtype=TEXT)


def parquet(outcomes: Iterable[Outcome], sets: Iterable[SetRecord]) -> bytes:
    """Return the outcomes as the content of a Parquet file."""
    packed = io.BytesIO()
    frame(outcomes, sets).to_parquet(packed, index=False, compression="zstd")
    return packed.getvalue()


def read(path: Path) -> pd.DataFrame:
    """Read ``outcomes.parquet``.

    Raises:
        UserError: the file cannot be read, or is no Parquet file of outcomes.
    """
    try:
        table = pd.read_parquet(path)
    except OSError as error:  # pyarrow's ArrowInvalid is a ValueError
        raise UserError(f"{path}: cannot read the file ({error.strerror or error}); name a run's {FILE}") from None
    except ValueError as error:
        raise UserError(f"{path}: not a Parquet file ({error}); render the run again") from None
    missing = [name for name in (*COLUMNS, FAILED_CHECKS) if name not in table]
    if missing:
        raise UserError(f"{path}: no column {', '.join(missing)}; name a run's {FILE}")
    return table
