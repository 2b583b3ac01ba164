"""Reads configuration files, recognises their dialect, and edits values in place.

An edit changes only the text of a value, so the file keeps its comments, order, quotes and indentation.
"""

from __future__ import annotations

import codecs
import os
import stat
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.tokens import (
    AliasToken,
    AnchorToken,
    FlowMappingEndToken,
    FlowMappingStartToken,
    FlowSequenceEndToken,
    FlowSequenceStartToken,
)

from matrix.errors import UserError
from reports.answers.configuration import splices
from reports.answers.configuration.dialects import plain
from reports.answers.configuration.dialects.accelerate import ACCELERATE
from reports.answers.configuration.dialects.axolotl import AXOLOTL
from reports.answers.configuration.dialects.llamafactory import LLAMAFACTORY
from reports.answers.configuration.dialects.trl import TRL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from reports.answers.configuration.dialects import Dialect

DIALECTS: Final = (ACCELERATE, AXOLOTL, LLAMAFACTORY, TRL)
LARGEST: Final = 100_000  # bytes: a configuration is a page or two
DEEPEST: Final = 20  # brackets within brackets


@dataclass(frozen=True, kw_only=True, eq=False)
class Config:
    """A file of one dialect. ``said`` holds its values by dotted path; mappings are there as well, as dicts."""

    path: Path
    text: str
    dialect: Dialect
    values: Mapping[str, Any]
    encoding: str = "utf-8"


def read(path: Path) -> Config:
    """A configuration file.

    Raises:
        UserError: it cannot be read, is no mapping, or is of no known dialect.
    """
    raw = contents(path)
    found = parsed(decoded(raw, path), path)
    return replace(found, encoding="utf-8-sig") if raw.startswith(codecs.BOM_UTF8) else found


def contents(path: Path) -> bytes:
    """The bytes of a file that is small enough to be a configuration: no more is read."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give --config a YAML file") from None
    if len(raw) > LARGEST:
        raise UserError(f"{path}: more than {LARGEST // 1000} kB is no configuration; give --config a YAML file")
    return raw


def decoded(raw: bytes, path: Path) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError(f"{path}: not text; give --config a YAML file")
    if not text.strip():
        raise UserError(f"{path}: the file is empty")
    return text


def parsed(text: str, path: Path) -> Config:
    """The configuration in a text; the path is for messages.

    Raises:
        UserError: it is no mapping, or of no known dialect.
    """
    values = dict(flat(root(text, path), path))
    return Config(path=path, text=text, dialect=dialect(values, path), values=values)


@lru_cache(maxsize=1024)  # the search for a repair reads the same few texts again and again
def root(text: str, path: Path) -> MappingNode:
    try:
        refuse_anchors_and_deep_nesting(text, path)
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise UserError(f"{path}{place(error)}: not valid YAML: {problem(error)}") from None
    except (YAMLError, RecursionError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "nested too deeply"
        raise UserError(f"{path}: not valid YAML: {first}") from None
    if not isinstance(node, MappingNode):
        raise UserError(f"{path}: expected keys and values at the top, as in `key: value`")
    return node


def refuse_anchors_and_deep_nesting(text: str, path: Path) -> None:
    depth = 0
    for token in YAML(typ="safe", pure=True).scan(text):
        line = token.start_mark.line + 1
        if isinstance(token, AnchorToken | AliasToken):
            raise UserError(f"{path}:{line}: anchors and aliases are not followed here; write the value out")
        depth += isinstance(token, FlowSequenceStartToken | FlowMappingStartToken)
        depth -= isinstance(token, FlowSequenceEndToken | FlowMappingEndToken)
        if depth > DEEPEST:
            raise UserError(f"{path}:{line}: brackets within brackets, more than {DEEPEST}, are no configuration")


def place(error: MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f":{mark.line + 1}" if mark is not None else ""


def problem(error: MarkedYAMLError) -> str:
    text = (error.problem or error.context or "it cannot be parsed").strip()
    return "a tab where only spaces may indent" if r"'\t'" in text else text


def flat(node: MappingNode, path: Path, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a mapping by its dotted path, and the mappings within."""
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise UserError(f"{path}:{key.start_mark.line + 1}: a key that is no word; write `key: value`")
        name = f"{prefix}{key.value}"
        if name in seen:
            raise UserError(f"{path}:{key.start_mark.line + 1}: {name} stands there a second time; keep one")
        seen.add(name)
        yield name, held(value)
        if isinstance(value, MappingNode):
            yield from flat(value, path, f"{name}.")


def held(node: Any) -> Any:
    """A node's value, scalars as text: ``plain`` says what they mean."""
    if isinstance(node, SequenceNode):
        return [held(each) for each in node.value]
    if isinstance(node, MappingNode):
        return {str(key.value): held(value) for key, value in node.value}
    return number(node)


def number(node: ScalarNode) -> Any:
    """Numbers as such; text, and what stands in quotes, as text; nothing as None."""
    if node.style is None and (node.tag or "").endswith(":float"):
        try:
            return float(node.value)
        except ValueError:
            return str(node.value)
    found = plain(node.value)
    return found if found is None or isinstance(found, bool | int) else str(node.value)


def dialect(values: Mapping[str, Any], path: Path) -> Dialect:
    """Of whose dialect the keys are: marks decide; without any, keys of every trainer are taken for TRL's."""
    marked = max(DIALECTS, key=lambda each: len(each.marks & values.keys()))
    if marked.marks & values.keys():
        return marked
    shared = next((each for each in DIALECTS if each.generic & values.keys()), None)
    if shared is None:
        names = ", ".join(each.name for each in DIALECTS)
        raise UserError(f"{path}: no keys of {names} in it; give --config a file of one of them")
    return shared


def edited(config: Config, changes: Mapping[str, Any]) -> str:
    """The text with other values, by dotted path; ``None`` empties a key that is there.

    Raises:
        UnwritableError: a value cannot be put there, such as one within a list.
    """
    text = config.text
    for path, value in changes.items():
        text = splices.put(text, root(text, config.path), path.split("."), value)
    return text


def write(texts: Mapping[Config, str]) -> tuple[Path, ...]:
    """Put texts into their files. Whoever reads one sees the old file or the new one, never half of it.

    Raises:
        UserError: a file cannot be written.
    """
    return tuple(put_whole(config.path.resolve(), text.encode(config.encoding)) for config, text in texts.items())


def put_whole(path: Path, raw: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(raw)
        temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); nothing in it was changed") from None
    finally:
        temporary.unlink(missing_ok=True)
    return path
