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
from reports.answers.configuration.dialects import normalise
from reports.answers.configuration.dialects.accelerate import ACCELERATE
from reports.answers.configuration.dialects.axolotl import AXOLOTL
from reports.answers.configuration.dialects.llamafactory import LLAMAFACTORY
from reports.answers.configuration.dialects.trl import TRL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from reports.answers.configuration.dialects import Dialect

DIALECTS: Final = (ACCELERATE, AXOLOTL, LLAMAFACTORY, TRL)
LARGEST: Final = 100_000  # bytes; a configuration is a page or two
DEEPEST: Final = 20  # nested brackets


@dataclass(frozen=True, kw_only=True, eq=False)
class Config:
    """A configuration file. ``values`` holds its values by dotted path, and also its mappings, as dicts."""

    path: Path
    text: str
    dialect: Dialect
    values: Mapping[str, Any]
    encoding: str = "utf-8"


def read(path: Path) -> Config:
    """Read a configuration file.

    Raises:
        UserError: the file cannot be read, is not a mapping, or has no known dialect.
    """
    raw = read_bytes(path)
    config = parse(decode(raw, path), path)
    return replace(config, encoding="utf-8-sig") if raw.startswith(codecs.BOM_UTF8) else config


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file, of at most ``LARGEST`` bytes."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give --config a YAML file") from None
    if len(raw) > LARGEST:
        raise UserError(f"{path}: larger than {LARGEST // 1000} kB, so not a configuration; give --config a YAML file")
    return raw


def decode(raw: bytes, path: Path) -> str:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UserError(f"{path}: is not text; give --config a YAML file")
    if not text.strip():
        raise UserError(f"{path}: is empty; give --config a YAML file")
    return text


def parse(text: str, path: Path) -> Config:
    """Return the configuration in a text. Messages name the path.

    Raises:
        UserError: the text is not a mapping, or has no known dialect.
    """
    values = dict(flatten(root_node(text, path), path))
    return Config(path=path, text=text, dialect=recognise_dialect(values, path), values=values)


@lru_cache(maxsize=1024)  # the search for a repair parses the same few texts many times
def root_node(text: str, path: Path) -> MappingNode:
    try:
        refuse_anchors_and_deep_nesting(text, path)
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise UserError(f"{path}{position(error)}: not valid YAML: {reason(error)}") from None
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
            raise UserError(f"{path}:{line}: anchors and aliases are not supported; write the value out")
        depth += isinstance(token, FlowSequenceStartToken | FlowMappingStartToken)
        depth -= isinstance(token, FlowSequenceEndToken | FlowMappingEndToken)
        if depth > DEEPEST:
            raise UserError(f"{path}:{line}: more than {DEEPEST} nested brackets; give --config a configuration file")


def position(error: MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f":{mark.line + 1}" if mark is not None else ""


def reason(error: MarkedYAMLError) -> str:
    text = (error.problem or error.context or "it cannot be parsed").strip()
    return "a tab where only spaces may indent" if r"'\t'" in text else text


def flatten(node: MappingNode, path: Path, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of a mapping, including nested mappings, with its dotted path."""
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise UserError(f"{path}:{key.start_mark.line + 1}: the key is not a single word; write `key: value`")
        name = f"{prefix}{key.value}"
        if name in seen:
            raise UserError(f"{path}:{key.start_mark.line + 1}: duplicate key {name}; keep one")
        seen.add(name)
        yield name, node_value(value)
        if isinstance(value, MappingNode):
            yield from flatten(value, path, f"{name}.")


def node_value(node: Any) -> Any:
    """Return the value of a node as lists, dicts and scalars. ``normalise`` makes equivalent scalars equal."""
    if isinstance(node, SequenceNode):
        return [node_value(each) for each in node.value]
    if isinstance(node, MappingNode):
        return {str(key.value): node_value(value) for key, value in node.value}
    return scalar_value(node)


def scalar_value(node: ScalarNode) -> Any:
    """Return a number, a flag, text, or None for an empty scalar."""
    if node.style is None and (node.tag or "").endswith(":float"):
        try:
            return float(node.value)
        except ValueError:
            return str(node.value)
    value = normalise(node.value)
    return value if value is None or isinstance(value, bool | int) else str(node.value)


def recognise_dialect(values: Mapping[str, Any], path: Path) -> Dialect:
    """Return the dialect with the most marks among the keys, or else the one with generic keys among them."""
    marked = max(DIALECTS, key=lambda each: len(each.marks & values.keys()))
    if marked.marks & values.keys():
        return marked
    shared = next((each for each in DIALECTS if each.generic & values.keys()), None)
    if shared is None:
        names = ", ".join(each.name for each in DIALECTS)
        raise UserError(f"{path}: contains no keys of {names}; give --config a file of one of them")
    return shared


def edit(config: Config, changes: Mapping[str, Any]) -> str:
    """Return the text with new values, by dotted path. ``None`` empties an existing key.

    Raises:
        UnwritableError: a value cannot be set at its path, such as one inside a list.
    """
    text = config.text
    for path, value in changes.items():
        text = splices.put(text, root_node(text, config.path), path.split("."), value)
    return text


def write(texts: Mapping[Config, str]) -> tuple[Path, ...]:
    """Replace the texts of files atomically, and return the paths of the files.

    Raises:
        UserError: a file cannot be written.
    """
    return tuple(replace_file(config.path.resolve(), text.encode(config.encoding)) for config, text in texts.items())


def replace_file(path: Path, raw: bytes) -> Path:
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
