"""Reads rows of the stored map by module, without reading the others into Python."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

from matrix.api_map.columns import ColumnFile
from matrix.api_map.store import NAMES, USES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from matrix.api_map.columns import Row


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
    """The names or uses of a package, sorted by module."""

    def __init__(self, path: Path) -> None:
        self.file = ColumnFile(path)

    def rows(self, module: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a module, without its name."""
        for row in self.file.rows(module):
            yield typed(row)

    def matching(self, column: str, pattern: str, kinds: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows in which a column matches a regular expression, of some kinds or of all.

        ``^`` and ``$`` match at the ends of a value.
        """
        modules = list(self.file.places)
        ends = [end for _, end in self.file.places.values()]
        kind = self.file.columns.index("kind")
        start = 0
        for group, end in enumerate(self.file.group_ends):
            for place in matching_lines(self.file.text(group, column), pattern):
                (row,) = self.file.slice(start + place, start + place + 1)
                if not kinds or row[kind] in kinds:
                    yield modules[bisect_right(ends, start + place)], *typed(row)
            start = end

    @property
    def modules(self) -> Mapping[str, object]:
        """The modules in order."""
        return self.file.places


def matching_lines(text: str, pattern: str) -> Iterator[int]:
    """Yield the numbers of the lines that match, from 0."""
    number = position = 0
    latest = -1
    for found in re.finditer(pattern, text, re.MULTILINE):
        number += text.count("\n", position, found.start())
        position = found.start()
        if number != latest:
            latest = number
            yield number


def typed(row: Row) -> tuple[Any, ...]:
    """Return a row with its places as numbers."""
    return *row[:-2], int(row[-2]), int(row[-1])


class PackageTables:
    """The tables of one package."""

    def __init__(self, package: str, folder: Path) -> None:
        self.package = package
        self.folder = folder
        self.name_table = Table(folder / NAMES.format(package))
        self.use_table = Table(folder / USES.format(package))
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
