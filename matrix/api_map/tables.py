"""Reads rows of the stored map by module, without reading the others into Python."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from matrix.api_map.store import releases_of
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class NameRow(NamedTuple):
    """A name that the releases at the places ``first`` to ``last`` have."""

    kind: str
    detail: str
    first: int
    last: int


class UseRow(NamedTuple):
    """A use that the releases at the places ``first`` to ``last`` have."""

    target: str
    kind: str
    conditions: str
    first: int
    last: int


class Table:
    """A Parquet file of rows that are sorted by module. Only the row groups that a question concerns are decoded."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.groups: dict[int, tuple[list[str], dict[str, Any]]] = {}

    @cached_property
    def file(self) -> Any:
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(self.path, read_dictionary=["module"])
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error}); create it with `ftmatrix map build`") from error

    @cached_property
    def bounds(self) -> list[tuple[str, str]]:
        """The first and the last module of each row group."""
        metadata = self.file.metadata
        column = self.file.schema.names.index("module")
        found = [metadata.row_group(number).column(column).statistics for number in range(metadata.num_row_groups)]
        return [(str(each.min), str(each.max)) for each in found]

    def group(self, number: int) -> tuple[list[str], dict[str, Any]]:
        """Return the modules of a row group's rows, and its other columns, undecoded."""
        if number not in self.groups:
            table = self.file.read_row_group(number, use_threads=False)
            columns = {name: table.column(name) for name in table.column_names}
            self.groups[number] = columns.pop("module").to_pylist(), columns
        return self.groups[number]

    def rows(self, module: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a module, without its name."""
        for number, (first, last) in enumerate(self.bounds if module in self.modules else ()):
            if first <= module <= last:
                modules, columns = self.group(number)
                start, end = bisect_left(modules, module), bisect_right(modules, module)
                found = [values.slice(start, end - start).to_pylist() for values in columns.values()]
                yield from zip(*found, strict=True)

    def matching(self, column: str, pattern: str, kinds: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows in which a column matches a regular expression (RE2), of some kinds or of all."""
        from pyarrow.compute import indices_nonzero, match_substring_regex

        values = self.file.read(columns=[column], use_threads=False).column(0)
        places = indices_nonzero(match_substring_regex(values, pattern)).to_pylist()
        start = 0
        for number in range(len(self.bounds)):
            end = start + self.file.metadata.row_group(number).num_rows
            for place in (place - start for place in places if start <= place < end):
                modules, columns = self.group(number)
                # One by one: to take several at once, pyarrow imports pandas.
                row = {name: values[place].as_py() for name, values in columns.items()}
                if not kinds or row["kind"] in kinds:
                    yield modules[place], *row.values()
            start = end

    @cached_property
    def modules(self) -> dict[str, None]:
        """The modules in order. Their column is cheap to read, and most questions name some that do not exist."""
        chunks = self.file.read(columns=["module"], use_threads=False).column(0).chunks
        return dict.fromkeys(sorted(name for chunk in chunks for name in chunk.dictionary.to_pylist()))


class PackageTables:
    """The tables of one package."""

    def __init__(self, package: str, folder: Path) -> None:
        self.package = package
        self.folder = folder
        self.name_table = Table(folder / f"{package}-names.parquet")
        self.use_table = Table(folder / f"{package}-uses.parquet")
        self.by_module: dict[str, dict[str, list[NameRow]]] = {}
        self.uses_by_module: dict[str, list[UseRow]] = {}

    def names(self, module: str) -> dict[str, list[NameRow]]:
        """Return the rows of a module by name; those of the module itself have an empty name."""
        if module not in self.by_module:
            found: dict[str, list[NameRow]] = {}
            for name, *row in self.name_table.rows(module):
                found.setdefault(name, []).append(NameRow(*row))
            self.by_module[module] = found
        return self.by_module[module]

    def uses(self, module: str) -> list[UseRow]:
        if module not in self.uses_by_module:
            self.uses_by_module[module] = [UseRow(*row) for row in self.use_table.rows(module)]
        return self.uses_by_module[module]

    def modules(self) -> tuple[str, ...]:
        return tuple(self.name_table.modules)


__all__ = ["NameRow", "PackageTables", "Table", "UseRow", "releases_of"]
