"""Reads the inline metadata of a Python script (PEP 723): its dependencies, its Python, and ``[tool.ftmatrix]``.

https://packaging.python.org/en/latest/specifications/inline-script-metadata/
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from matrix.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# The expression of the specification.
BLOCK: Final = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
START: Final = re.compile(r"(?m)^# /// script\s*$")
TOOL: Final = "ftmatrix"


@dataclass(frozen=True, kw_only=True)
class ScriptMetadata:
    """``table`` is that of ``[tool.ftmatrix]``; all are empty for a script without metadata."""

    dependencies: tuple[str, ...] = ()
    requires_python: str = ""
    table: Mapping[str, Any] = field(default_factory=dict)


def read(path: Path) -> ScriptMetadata:
    """Read the metadata of a script.

    Raises:
        UserError: the script cannot be read, or its metadata is malformed.
    """
    return parse(source(path), str(path))


def source(path: Path) -> str:
    """The text of a script.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such script; correct its path") from None
    except OSError as error:
        raise UserError(
            f"{path}: the script cannot be read ({error.strerror}); name a file that you may read"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: the script is not UTF-8 text; name a Python file") from None


def parse(text: str, name: str) -> ScriptMetadata:
    """Parse the metadata in the text of a script; ``name`` is the script in messages.

    Raises:
        UserError: the metadata is malformed.
    """
    blocks = [match for match in BLOCK.finditer(text) if match["type"] == "script"]
    if not blocks and START.search(text):
        raise UserError(f"{name}: the block `# /// script` does not end; every line starts with #, the last is `# ///`")
    if not blocks:
        return ScriptMetadata()
    if len(blocks) > 1:
        raise UserError(f"{name}: there is more than one block `# /// script`; keep one")
    lines = blocks[0]["content"].splitlines(keepends=True)
    try:
        document = tomllib.loads("".join(line[2:] if line.startswith("# ") else line[1:] for line in lines))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name}: the block `# /// script` is not valid TOML: {error}") from None
    return metadata_of(document, name)


def metadata_of(document: Mapping[str, Any], name: str) -> ScriptMetadata:
    unknown = sorted(document.keys() - {"dependencies", "requires-python", "tool"})
    if unknown:
        raise UserError(f"{name}: {unknown[0]}: expected dependencies, requires-python or [tool.{TOOL}]")
    tools = document.get("tool", {})
    table = tools.get(TOOL, {}) if isinstance(tools, dict) else None
    if not isinstance(table, dict):
        raise UserError(f"{name}: tool.{TOOL}: expected a table, [tool.{TOOL}]")
    return ScriptMetadata(
        dependencies=requirements(document.get("dependencies", []), f"{name}: dependencies"),
        requires_python=python_specifier(document.get("requires-python", ""), f"{name}: requires-python"),
        table=table,
    )


def requirements(value: Any, at: str) -> tuple[str, ...]:
    """Check a list of requirements.

    Raises:
        UserError: it is no list, or a requirement is malformed or names a file or an address.
    """
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UserError(f'{at}: expected a list of requirements such as ["datasets>=3"], got {value!r}')
    for each in value:
        try:
            url = Requirement(each).url
        except InvalidRequirement as error:
            raise UserError(f"{at}: {each!r} is no requirement: {str(error).splitlines()[0]}") from None
        if url:
            raise UserError(f"{at}: {each!r} names an address; name a package of the index")
    return tuple(value)


def python_specifier(value: Any, at: str) -> str:
    try:
        return str(SpecifierSet(value))
    except (InvalidSpecifier, TypeError, AttributeError):
        raise UserError(f'{at}: expected a specifier such as ">=3.11", got {value!r}') from None
