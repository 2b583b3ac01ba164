"""A run as ``outcomes.parquet``: one row per outcome, with columns to query and the rest of the outcome as JSON.

The metadata of the file hold the rest of the run under the key ``ftmatrix``: a ``MatrixDocument`` without cells, as
JSON, compressed by zlib and written in base64. Importing pyarrow takes a moment: commands that answer at once import
this module inside the functions that need it.
"""

from __future__ import annotations

import base64
import io
import json
import zlib
from bisect import bisect_right
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import accumulate
from typing import IO, TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from cases.space.renamed import current_case_id
from cases.space.verdict import Phase, Verdict
from matrix.errors import UserError
from matrix.run.outcome import ErrorRecord, OptionValues, Outcome, current_group
from reports.results import document as data
from reports.results.outcome_columns import (
    COLUMNS,
    FAILED_CHECKS,
    OPTIONS,
    OUTCOME,
    SHARED,
    TEXT,
    option_names,
    schema_of,
    table_of,
)
from reports.results.outcome_rows import OutcomeRow, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.run.outcome import SetRecord
    from reports.results.document import MatrixDocument
    from reports.results.outcome_rows import AnyOutcome

KEY: Final = b"ftmatrix"
ROWS: Final = 1000  # of a row group, which a reader decompresses as one
KEPT_GROUPS: Final = 4
LEVEL: Final = 12  # of zstd; higher levels take minutes for a large run and gain a few percent
OPTION_VALUES: Final = TypeAdapter(OptionValues)
HEAD: Final = (*SHARED, "repeat", "started", "has_facts")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
AGAIN: Final = "publish the run again"


def content(header: MatrixDocument, outcomes: Sequence[AnyOutcome]) -> bytes:
    """Return a run as the content of a Parquet file. The cells of its ``header`` are ignored."""
    packed = io.BytesIO()
    write(packed, outcomes, header.sets, header)
    return packed.getvalue()


def write(
    sink: IO[bytes], outcomes: Sequence[AnyOutcome], sets: Sequence[SetRecord], header: MatrixDocument | None = None
) -> None:
    """Write outcomes in the given order, a row group at a time.

    Without a header the file is a table to query, and not the results of a run.
    """
    schema = schema_of(each.options for each in outcomes)
    texts = [field.name for field in schema if field.type == TEXT and field.name != OUTCOME]
    records = {each.key: each for each in sets}
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=texts,
        write_statistics=False,
        store_schema=False,
    ) as writer:
        if header is not None:
            writer.add_key_value_metadata({KEY: packed_header(header)})
        for start in range(0, max(len(outcomes), 1), ROWS):
            writer.write_table(table_of([whole(each) for each in outcomes[start : start + ROWS]], records, schema))


def packed_header(header: MatrixDocument) -> bytes:
    text = header.model_copy(update={"cells": (), "flaky": ()}).model_dump_json(by_alias=True)
    return base64.b64encode(zlib.compress(text.encode(), 9))


class OutcomeTable:
    """The content of an ``outcomes.parquet``, of which it decompresses a few row groups at a time.

    Raises:
        UserError: the file is damaged or no table of outcomes, or a newer harness wrote it.
    """

    def __init__(self, content: bytes, path: Path) -> None:
        self.path = path
        self.groups: dict[int, pa.ChunkedArray] = {}
        try:
            known = pq.read_schema(pa.BufferReader(content)).names
            shared = [name for name in SHARED if name in known]
            self.file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=shared)
        except (pa.ArrowException, OSError) as error:
            raise data.DamagedDocumentError(path, f"not a Parquet file ({one_line(error)})", AGAIN) from None
        self.names: list[str] = self.file.schema_arrow.names
        missing = [name for name in (*COLUMNS, FAILED_CHECKS) if name not in self.names]
        if missing:
            raise UserError(f"{path}: no column {', '.join(missing)}; give the outcomes.parquet of a run")

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        return self.file.metadata.metadata or {}

    @property
    def is_run(self) -> bool:
        """Whether the file has whole outcomes and the request of their run, which tables of older versions lack."""
        return OUTCOME in self.names and KEY in self.metadata

    @cached_property
    def header(self) -> MatrixDocument:
        """The run without its cells.

        Raises:
            UserError: it is damaged, or a newer harness wrote it.
        """
        try:
            raw = json.loads(zlib.decompress(base64.b64decode(self.metadata[KEY])))
        except (ValueError, zlib.error) as error:
            raise data.DamagedDocumentError(self.path, f"its metadata are damaged ({error})", AGAIN) from None
        return data.validated(raw, self.path)

    @cached_property
    def rows(self) -> tuple[OutcomeRow, ...]:
        """The outcomes in stored order.

        Raises:
            UserError: the file is damaged.
        """
        with self.whole_rows():
            table = self.file.read(columns=[*HEAD]).combine_chunks()
            return tuple(self.heads(table, range(len(table))))

    def rows_of(self, cases: Collection[str]) -> tuple[OutcomeRow, ...]:
        """Return the outcomes of some cases in stored order; a file without them costs one column.

        Raises:
            UserError: the file is damaged.
        """
        with self.whole_rows():
            names = shared_values(self.file.read(columns=["case"]).column("case"), current_case_id)
            numbers = [number for number, name in enumerate(names) if name in cases]
            if not numbers:
                return ()
            table = self.file.read(columns=[*HEAD]).combine_chunks()
            rows = pa.concat_tables(table.slice(number, 1) for number in numbers)  # `take` imports pandas
            return tuple(self.heads(rows.combine_chunks(), numbers))

    @contextmanager
    def whole_rows(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            raise data.DamagedDocumentError(self.path, f"its rows are damaged ({one_line(error)})", AGAIN) from None

    def heads(self, table: pa.Table, numbers: Iterable[int]) -> Iterator[OutcomeRow]:
        convert: dict[str, Callable[[str], Any]] = {
            "case": current_case_id,
            "group": current_group,
            "verdict": Verdict,
            OPTIONS: OPTION_VALUES.validate_json,
        }
        columns = {name: shared_values(table.column(name), convert.get(name)) for name in SHARED}
        columns |= {name: table.column(name).to_pylist() for name in ("repeat", "has_facts")}
        # As numbers, because pyarrow imports pandas, which takes a second, to convert times.
        columns["started"] = [*map(moment, table.column("started").cast(pa.int64()).to_pylist())]
        for number, values in zip(numbers, zip(*(columns[name] for name in HEAD), strict=True), strict=True):
            yield OutcomeRow(source=self, number=number, **dict(zip(HEAD, values, strict=True)))

    def outcome(self, row: OutcomeRow) -> Outcome:
        """Return the whole outcome of a row.

        Raises:
            UserError: the row is damaged.
        """
        number = row.number
        group = bisect_right(self.starts, number) - 1
        try:
            values = from_json(self.texts(group)[number - self.starts[group]].as_py())
            return Outcome.model_validate({**values, **{name: getattr(row, name) for name in SHARED}})
        except (pa.ArrowException, OSError, ValueError) as error:
            words = data.first_problem(error) if isinstance(error, ValidationError) else one_line(error)
            raise data.DamagedDocumentError(self.path, f"row {number + 1}: {words}", AGAIN) from None

    @cached_property
    def starts(self) -> list[int]:
        """The number of the first row of each row group."""
        counts = [self.file.metadata.row_group(group).num_rows for group in range(self.file.num_row_groups)]
        return [*accumulate(counts, initial=0)][:-1]

    def texts(self, group: int) -> pa.ChunkedArray:
        if group not in self.groups:
            if len(self.groups) == KEPT_GROUPS:
                del self.groups[next(iter(self.groups))]
            self.groups[group] = self.file.read_row_group(group, columns=[OUTCOME]).column(OUTCOME)
        return self.groups[group]

    def plain_outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes of a table of an older version, as far as its columns have them.

        Leaves out rows with a verdict that this version does not know.

        Raises:
            UserError: the file is damaged.
        """
        try:
            rows = self.file.read().to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise data.DamagedDocumentError(self.path, f"its rows are damaged ({one_line(error)})", AGAIN) from None
        names = option_names(self.file.schema_arrow)
        known = ({name: value for name, value in row.items() if value is not None} for row in rows)
        yield from (plain_outcome(row, names) for row in known if row["verdict"] in [*Verdict])


def one_line(error: Exception) -> str:
    """Return the message of an error of Arrow, which may have several lines."""
    return " ".join(str(error).split())


def plain_outcome(row: Mapping[str, Any], options: Iterable[str]) -> Outcome:
    """Return the outcome that a row of columns holds."""
    error = ErrorRecord(type=row["error"], message=row.get("message", "")) if "error" in row else None
    return Outcome(
        set=row["set"],
        case=row["case"],
        group=row["group"],
        why="",
        options={name: row[name] for name in options if name in row},
        verdict=Verdict(row["verdict"]),
        reason=row.get("reason", ""),
        phase=Phase(row["phase"]) if row.get("phase") in [*Phase] else None,
        error=error,
        attempt=row["attempt"],
        repeat=row["repeat"],
        lock=row.get("lock", ""),
        code=row.get("code", ""),
        hardware=row.get("hardware", ""),
        started=row["started"],
        seconds=row["seconds"],
    )


def moment(microseconds: int) -> datetime:
    """Return the time so long after the beginning of 1970 in UTC."""
    return EPOCH + timedelta(microseconds=microseconds)


def shared_values(column: pa.ChunkedArray, convert: Callable[[str], Any] | None) -> list[Any]:
    """Return the values of a text column, equal ones as one object; null is an empty text."""
    chunk = column.combine_chunks()
    encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):  # of a table without rows
        return []
    values, places = encoded.dictionary.to_pylist(), encoded.indices.to_pylist()
    used = {*places} - {None}  # a part of a table has the dictionary of the whole one
    known = {place: convert(values[place]) if convert else values[place] for place in used}
    return ["" if place is None else known[place] for place in places]
