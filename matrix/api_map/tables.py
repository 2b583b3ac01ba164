"""Reads rows of the stored map by module, without reading the others into Python."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from matrix.api_map.store import releases_of
from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """A Parquet file of rows that are sorted by module."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cached: dict[str, Any] = {}

    @cached_property
    def columns(self) -> dict[str, Any]:
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path) as file:  # read_table would import the modules for folders of files as well
                table = file.read()
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error}); create it with `ftmatrix map build`") from error
        return {name: table.column(name).combine_chunks() for name in table.column_names}

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """The first row of each module, and the one after its last."""
        import pyarrow.compute as pc

        runs = pc.run_end_encode(self.columns["module"], run_end_type="int32")
        ends = runs.run_ends.to_pylist()
        return dict(zip(runs.values.to_pylist(), zip([0, *ends], ends, strict=False), strict=True))

    def rows(self, module: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a module, without its name."""
        start, end = self.places.get(module, (0, 0))
        columns = [
            values.slice(start, end - start).to_pylist() for name, values in self.columns.items() if name != "module"
        ]
        return zip(*columns, strict=True)

    def matching(self, column: str, pattern: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows in which a column matches a regular expression (RE2)."""
        import pyarrow.compute as pc

        mask = pc.match_substring_regex(self.columns[column], pattern)
        columns = [values.filter(mask).to_pylist() for values in self.columns.values()]
        return zip(*columns, strict=True)


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
        return tuple(self.name_table.places)


__all__ = ["NameRow", "PackageTables", "Table", "UseRow", "releases_of"]
