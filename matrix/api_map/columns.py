"""Tables of text in one file: columns of groups of rows, each compressed alone, so that an answer reads few of them.

The file is a zip archive. Its member ``index.json.xz`` lists the modules in order, each with its number of rows; the
member ``3/name.xz`` has the column ``name`` of the rows of group 3, one a line. The standard library reads that in a
few milliseconds; importing a library for Parquet takes longer than an answer.
"""

from __future__ import annotations

import json
import lzma
import zipfile
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Final

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

GROUP_ROWS: Final = 12_000  # a group ends with a module, so that it may have more
LINE_BREAK: Final = "\x1f"  # stands for the line breaks of a value
EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # files with the same rows are the same
INDEX: Final = "index.json.xz"

Row = tuple[str, ...]


def write(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write rows that are sorted by their first value, the module."""
    groups: list[list[Row]] = [[]]
    modules: list[tuple[str, int]] = []
    for module, same in groupby(rows, key=lambda row: row[0]):
        if len(groups[-1]) >= GROUP_ROWS:
            groups.append([])
        of_module = [row[1:] for row in same]
        groups[-1] += of_module
        modules.append((module, len(of_module)))
    index = {"columns": columns[1:], "modules": modules, "groups": [len(each) for each in groups]}
    with zipfile.ZipFile(path, "w") as archive:
        add(archive, INDEX, json.dumps(index, separators=(",", ":")))
        for number, group in enumerate(groups):
            for name, values in zip(columns[1:], zip(*group, strict=True), strict=False):
                add(archive, f"{number}/{name}.xz", "\n".join(each.replace("\n", LINE_BREAK) for each in values))


def add(archive: zipfile.ZipFile, name: str, text: str) -> None:
    archive.writestr(zipfile.ZipInfo(name, EPOCH), lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


class ColumnFile:
    """A file of rows. Only the columns of the groups that a question concerns are decompressed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts: dict[tuple[int, str], str] = {}
        self.lines: dict[tuple[int, str], list[str]] = {}

    @cached_property
    def archive(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except (OSError, zipfile.BadZipFile) as error:
            raise UserError(f"{self.path}: cannot be read ({error}); create it with `ftmatrix map build`") from error

    def member(self, name: str) -> str:
        try:
            return lzma.decompress(self.archive.read(name)).decode()
        except (KeyError, lzma.LZMAError, zipfile.BadZipFile) as error:
            raise UserError(f"{self.path}: is damaged ({error}); create it with `ftmatrix map build`") from error

    @cached_property
    def index(self) -> dict[str, list[object]]:
        found: dict[str, list[object]] = json.loads(self.member(INDEX))
        return found

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns without the module."""
        return tuple(map(str, self.index["columns"]))

    @cached_property
    def group_ends(self) -> list[int]:
        """The number of rows up to the end of each group."""
        return list(accumulate(map(int, map(str, self.index["groups"]))))

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """The place of the first row of each module, and of the row after its last, in the order of modules."""
        found: dict[str, tuple[int, int]] = {}
        start = 0
        for module, count in self.index["modules"]:  # type: ignore[misc]
            found[module], start = (start, start + count), start + count  # type: ignore[has-type]
        return found

    def column(self, group: int, name: str) -> list[str]:
        if (group, name) not in self.lines:
            self.lines[group, name] = self.text(group, name).split("\n")
        return self.lines[group, name]

    def text(self, group: int, name: str) -> str:
        """Return a column of a group, one value a line. Line breaks of values are ``LINE_BREAK``."""
        if (group, name) not in self.texts:
            self.texts[group, name] = self.member(f"{group}/{name}.xz")
        return self.texts[group, name]

    def rows(self, module: str) -> Iterator[Row]:
        """Yield the rows of a module, without its name."""
        if module in self.places:
            yield from self.slice(*self.places[module])

    def slice(self, start: int, end: int) -> Iterator[Row]:
        """Yield rows of one group."""
        group = bisect_right(self.group_ends, start)
        before = self.group_ends[group - 1] if group else 0
        found = [self.column(group, name)[start - before : end - before] for name in self.columns]
        for values in zip(*found, strict=True):
            yield tuple(each.replace(LINE_BREAK, "\n") for each in values)

    def all_rows(self) -> Iterator[tuple[str, Row]]:
        """Yield all rows, each with its module."""
        for module in self.places:
            for row in self.rows(module):
                yield module, row
