"""The history of nights: one Parquet file a month, readable by ``pandas.read_parquet("history")``.

A row is one outcome of one night. Columns:

* ``night``: the UTC date on which the run started;
* ``device``, ``hardware``, ``set``, ``case``, ``repeat``: the cell, and the number of its repeat;
* ``verdict``, ``cause`` (id of a signature, or ``unexplained``) and ``reason`` (the gist of the failure), the latter
  two null unless the cell is red;
* ``seconds``, and ``memory_mib``: the peak on a GPU if there is one, else on the host;
* ``torch``, ``transformers``, ``peft``, ``bitsandbytes``, ``accelerate``, ``trl``: the versions of the set;
* ``lock`` and ``code``: the digests of the lock and of the case code.

Texts are dictionary-encoded. Importing pyarrow takes a second: commands import this
module in the functions that use it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cases.space.verdict import RED, Verdict
from matrix.errors import UserError
from matrix.versions.sets import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date
    from pathlib import Path

FOLDER: Final = "history"
TEXT: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
    [
        ("night", pa.timestamp("ms")),
        *((name, TEXT) for name in ("device", "hardware", "set", "case")),
        ("repeat", pa.int16()),
        *((name, TEXT) for name in ("verdict", "cause", "reason")),
        ("seconds", pa.float32()),
        ("memory_mib", pa.float32()),
        *((name, TEXT) for name in (*PACKAGES, "lock", "code")),
    ]
)
CELL: Final = ["night", "device", "hardware", "set", "case"]
RAN: Final = frozenset(each.value for each in RED | {Verdict.PASS})
RED_WORDS: Final = sorted(each.value for each in RED)


@dataclass(frozen=True, kw_only=True)
class AddedNight:
    """The numbers of rows that an addition wrote, and that it replaced."""

    added: int
    replaced: int


def add(folder: Path, rows: Sequence[Mapping[str, Any]]) -> AddedNight:
    """Add the rows of a night; rows of the same night, hardware and cell are replaced.

    Each file is replaced in one step, so a reader sees the old content or the new.

    Raises:
        UserError: the folder cannot be written, or a file in it is no history.
    """
    replaced = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            for month, of_month in by_month(rows).items():
                replaced += replace_month(folder / f"{month}.parquet", of_month)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror or error}); name another --history") from None
    return AddedNight(added=len(rows), replaced=replaced)


def by_month(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    months: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        months.setdefault(f"{row['night']:%Y-%m}", []).append(row)
    return months


def replace_month(path: Path, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write a month with the new rows; return the number of old rows that they replace."""
    new = pa.Table.from_pylist([dict(row) for row in rows], schema=SCHEMA)
    if not path.exists():
        write(new, path)
        return 0
    old = month(path)
    cells = pd.MultiIndex.from_frame(new.select(CELL).to_pandas().astype(str))
    kept = ~pd.MultiIndex.from_frame(old.select(CELL).to_pandas().astype(str)).isin(cells)
    write(pa.concat_tables([old.filter(pa.array(kept)), new]).unify_dictionaries(), path)
    return int((~kept).sum())


def month(path: Path) -> pa.Table:
    try:
        return pq.read_table(path).select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise UserError(f"{path}: no history of ftmatrix ({error}); move it away, or name another --history") from None


def write(table: pa.Table, path: Path) -> None:
    """Write a file whole: to a name that readers of the folder ignore, which then replaces the file."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    pq.write_table(table, unfinished, compression="zstd")
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: two additions at once would lose one."""
    with (folder / ".lock").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read(
    folder: Path, *, case: str = "", version_set: str = "", device: str = "", since: date | None = None
) -> pd.DataFrame:
    """Return rows in the order of nights; an empty argument restricts nothing.

    Raises:
        UserError: there is no history, it cannot be read, or it does not have the case.
    """
    wanted: list[tuple[str, str, Any]] = [
        (name, "==", value) for name, value in (("case", case), ("set", version_set), ("device", device)) if value
    ]
    if since is not None:
        wanted.append(("night", ">=", pd.Timestamp(since)))
    table = loaded(folder, filters=wanted or None)
    if case and table.empty:
        raise UserError(why_empty(folder, case))
    return table.sort_values("night", kind="stable")


def loaded(folder: Path, **options: Any) -> pd.DataFrame:
    if not any(folder.glob("*.parquet")):
        raise UserError(f"{folder}: no history yet; add a night with `ftmatrix history add RUN`")
    try:
        return pd.read_parquet(folder, **options)
    except (OSError, ValueError, KeyError) as error:  # pyarrow's ArrowInvalid is a ValueError
        raise UserError(f"{folder}: the history cannot be read ({error}); remove other and damaged files") from None


def why_empty(folder: Path, case: str) -> str:
    known = sorted(loaded(folder, columns=["case"])["case"].unique())
    near = get_close_matches(case, known, n=3, cutoff=0.5)
    if case in known:
        return f"{case}: no night of this set, device and time; widen --device, or --months"
    return f"{case}: no such case in {folder}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def first_red_nights(folder: Path, *, device: str) -> dict[tuple[str, str, str, str], date]:
    """Return the first night on which a cell was red for a cause, by set, case, cause and reason.

    Raises:
        UserError: there is no history, or it cannot be read.
    """
    names = ["set", "case", "cause", "reason"]
    table = loaded(folder, columns=["night", *names], filters=[("device", "==", device), ("verdict", "in", RED_WORDS)])
    first = table.groupby(names, observed=True)["night"].min().reset_index()
    rows = first.itertuples(index=False, name=None)
    return {(str(key), str(case), str(cause), str(reason)): night.date() for key, case, cause, reason, night in rows}


def recent_verdicts(folder: Path, *, device: str, nights: int) -> dict[tuple[str, str], list[frozenset[str]]]:
    """Return the verdicts of each of the last nights on which a cell ran, by set and case."""
    table = loaded(folder, columns=["night", "set", "case", "verdict"], filters=[("device", "==", device)])
    table = table[table["verdict"].isin(RAN)]
    last = sorted(table["night"].unique())[-nights:]
    rows = table[table["night"].isin(last)].drop_duplicates().sort_values("night")
    found: dict[tuple[str, str], dict[Any, set[str]]] = {}  # plain values: groups of pandas are a hundred times slower
    for night, key, name, verdict in rows.itertuples(index=False, name=None):
        found.setdefault((str(key), str(name)), {}).setdefault(night, set()).add(str(verdict))
    return {cell: [*map(frozenset, of_cell.values())] for cell, of_cell in found.items()}
