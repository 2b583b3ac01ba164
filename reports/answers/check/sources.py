"""Reads Python scripts and notebooks into syntax trees, without running them.

A notebook is read cell by cell. Lines of IPython, such as ``!pip install`` and ``%matplotlib``, are left out.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SCRIPT, NOTEBOOK = ".py", ".ipynb"
LARGEST: Final = 20_000_000  # bytes; notebooks hold their images
PYTHON_2: Final = re.compile(
    r"""^\s*(?:print\s+(?:["'\w%]|>>)|except\s+[\w.]+\s*,\s*\w+\s*:|raise\s+\w+\s*,|exec\s+["'\w])|\b0[0-7]+L?\b|<>"""
)
# IPython's own syntax: magics, shell commands and help.
MAGIC_CELL: Final = re.compile(r"%%(?P<name>\w+)")
PYTHON_CELLS: Final = frozenset({"time", "timeit", "capture", "prun", "python", "python3", "skip"})
MAGIC_LINE: Final = re.compile(r"\s*(?:[!?]|%{1,2}\w|[\w.]+\?{1,2}\s*$|(?:pip|conda)\s+(?:install|uninstall)\s)")
ASSIGNED_MAGIC: Final = re.compile(r"(?P<indent>\s*)(?P<name>[\w.,\s]+?)\s*=\s*[!%]\w")
TIMED: Final = re.compile(r"(?P<indent>\s*)%(?:time|timeit|prun|memit)\s+(?:-\S+\s+\S+\s+)*(?P<code>.+)")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Code of a notebook. ``first`` is the line of the joined code on which it begins."""

    number: int
    first: int


@dataclass(frozen=True, kw_only=True)
class CodeSource:
    """The code of a script or notebook. ``skipped`` names cells that could not be read, each with the reason."""

    path: Path
    tree: ast.Module
    cells: tuple[Cell, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    def place(self, line: int) -> str:
        """Return where a line of the tree stands, such as ``train.py:12`` or ``run.ipynb: cell 3, line 2``."""
        cell = next((each for each in reversed(self.cells) if each.first <= line), None)
        if cell is None:
            return f"{self.path.name}:{line}"
        return f"{self.path.name}: cell {cell.number}, line {line - cell.first + 1}"


def read(path: Path) -> CodeSource:
    """Return the code of a file.

    Raises:
        UserError: the file cannot be read, is no text, has no code, or does not parse.
    """
    text = text_of(path)
    return notebook(text, path) if path.suffix.lower() == NOTEBOOK else script(text, path)


def text_of(path: Path) -> str:
    """Return the text of a file.

    Raises:
        UserError: the file cannot be read, is too large, or is no text.
    """
    try:
        if path.is_dir():
            raise UserError(f"{path}: is a folder; name the files in it")
        if path.stat().st_size > LARGEST:
            raise UserError(
                f"{path}: is larger than {LARGEST // 1_000_000} MB; give a script, notebook or configuration"
            )
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name an existing file") from None
    text = decoded(raw)
    if "\0" in text:
        raise UserError(f"{path}: is not text; give a script, notebook or configuration")
    if not text.strip():
        raise UserError(f"{path}: is empty; give a script, notebook or configuration")
    return text


def decoded(raw: bytes) -> str:
    """Decode a file as Python does: as UTF-8, or as the comment on its first lines says. A null stands for no text."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return raw.decode(encoding)
    except (SyntaxError, UnicodeDecodeError):
        return "\0"


def script(text: str, path: Path) -> CodeSource:
    try:
        tree = parsed(text)
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno or 1}: {reason(error, text)}") from None
    except (ValueError, RecursionError, MemoryError):
        raise UserError(f"{path}: the code cannot be parsed; it is nested too deeply") from None
    if not tree.body:
        raise UserError(f"{path}: has no code; give a script, notebook or configuration")
    return CodeSource(path=path, tree=tree)


def parsed(text: str) -> ast.Module:
    with warnings.catch_warnings():  # of escapes in the user's strings
        warnings.simplefilter("ignore")
        return ast.parse(text)


def reason(error: SyntaxError, text: str) -> str:
    """Say why code does not parse: it may be of Python 2."""
    lines = text.splitlines()
    line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
    if PYTHON_2.search(line):
        return f"this is Python 2 (`{line.strip()[:60]}`); the stack needs Python 3"
    return f"the code does not parse as Python 3: {error.msg}"


def notebook(text: str, path: Path) -> CodeSource:
    """Join the code cells of a notebook.

    Raises:
        UserError: it is no notebook, it has no code, or none of its cells parses.
    """
    body: list[ast.stmt] = []
    cells: list[Cell] = []
    skipped: list[tuple[str, str]] = []
    line = 1
    for number, code in code_cells(text, path):
        cells.append(Cell(number=number, first=line))
        try:
            tree = parsed(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = reason(error, code) if isinstance(error, SyntaxError) else "the code cannot be parsed"
            skipped.append((f"{path.name}: cell {number}", why))
        else:
            body += [ast.increment_lineno(each, line - 1) for each in tree.body]
        line += code.count("\n") + 1
    if not cells:
        raise UserError(f"{path}: the notebook has no code; give one with code cells")
    if not body and skipped:
        raise UserError(f"{': '.join(skipped[0])}; no other cell has code")
    return CodeSource(
        path=path, tree=ast.Module(body=body, type_ignores=[]), cells=tuple(cells), skipped=tuple(skipped)
    )


def code_cells(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and the Python code of each code cell; cells are counted from 1.

    Raises:
        UserError: the text is no notebook.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{path}: is not a notebook: not valid JSON; save it again in Jupyter") from None
    for number, cell in enumerate(listed_cells(document, path), start=1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        written = cell.get("source", cell.get("input"))  # version 3 of the format calls it input
        lines = written if isinstance(written, list) else [written]
        code = python_of("".join(each for each in lines if isinstance(each, str)))
        if code.strip():
            yield number, code


def listed_cells(document: Any, path: Path) -> Sequence[Any]:
    if isinstance(document, dict):
        cells = document.get("cells")
        if isinstance(cells, list):
            return cells
        sheets = document.get("worksheets")
        if isinstance(sheets, list):
            return [cell for sheet in sheets if isinstance(sheet, dict) for cell in sheet.get("cells", ())]
    raise UserError(f"{path}: is not a notebook: it has no list of cells; save it again in Jupyter")


def python_of(code: str) -> str:
    """Return a cell without IPython's syntax; its lines keep their places."""
    lines = code.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    magic = MAGIC_CELL.match(lines[first])
    if magic is not None and magic["name"] not in PYTHON_CELLS:
        return ""
    found: list[str] = []
    continued = False
    for line in lines:
        if continued:
            found.append("")
            continued = line.rstrip().endswith("\\")
            continue
        plain = without_magic(line)
        continued = plain != line and line.rstrip().endswith("\\")
        found.append(plain)
    return "\n".join(found)


def without_magic(line: str) -> str:
    timed, assigned = TIMED.fullmatch(line), ASSIGNED_MAGIC.match(line)
    if timed is not None:
        return f"{timed['indent']}{timed['code']}"
    if assigned is not None:
        return f"{assigned['indent']}{assigned['name']} = None"
    if MAGIC_LINE.match(line):
        return f"{line[: len(line) - len(line.lstrip())]}pass" if line[:1].isspace() else ""
    return line
