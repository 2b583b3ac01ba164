"""Replaces or inserts a value in a YAML or JSON text without changing anything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml.nodes import MappingNode, ScalarNode

from reports.answers.configuration.dialects import UnwritableError, normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INDENT: Final = 2
BLOCKS: Final = ("|", ">")
QUOTES: Final = ("'", '"')


def put(text: str, node: MappingNode, path: Sequence[str], value: Any) -> str:
    """Return the text with a new value at a path below a mapping. ``None`` empties an existing key.

    Raises:
        UnwritableError: a value cannot be set at the path, such as one inside a list.
    """
    name, *rest = path
    for key, old in node.value:
        if key.value != name:
            continue
        if rest and isinstance(old, MappingNode):
            return put(text, old, rest, value)
        if not rest and isinstance(old, ScalarNode):
            return replace_value(text, key, old, format_like(value, old, node))
        if rest and isinstance(old, ScalarNode) and normalise(old.value) is None and not node.flow_style:
            return fill_empty(text, key, old, block_lines(rest, value, key.start_mark.column + INDENT))
        raise UnwritableError(".".join(path))
    if value is None:
        return text
    return insert_in_braces(text, node, path, value) if node.flow_style else insert_in_block(text, node, path, value)


def replace_value(text: str, key: ScalarNode, old: ScalarNode, new: str) -> str:
    start, end = span(text, key, old)
    gap = " " if new and text[start - 1] == ":" else ""
    return f"{text[:start]}{gap}{new}{text[end:]}"


def span(text: str, key: ScalarNode, value: ScalarNode) -> tuple[int, int]:
    """Return the start and end of a value. An empty value starts behind its colon, not at the next token."""
    if value.start_mark.index == value.end_mark.index:
        colon = text.index(":", key.end_mark.index) + 1
        return colon, colon
    return value.start_mark.index, value.end_mark.index


def format_like(value: Any, like: ScalarNode, within: MappingNode) -> str:
    """Return a value in the quotes and case of the old value."""
    if value is None:
        return "null" if within.flow_style else ""
    if isinstance(value, bool):
        word = to_yaml(value)
        return word.capitalize() if like.value[:1].isupper() else word
    if like.style in QUOTES:
        return f"{like.style}{value}{like.style}"
    return json.dumps(value) if within.flow_style else to_yaml(value)


def to_yaml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    is_flag = isinstance(value, str) and isinstance(normalise(value), bool)  # a word that YAML parses as a flag
    return f"'{value}'" if is_flag else str(value)


def fill_empty(text: str, key: ScalarNode, old: ScalarNode, lines: Iterator[str]) -> str:
    """Replace an empty value by a mapping."""
    start, end = span(text, key, old)
    without = f"{text[:start].rstrip(' ')}{text[end:]}"
    return insert_after_line(without, key.end_mark.index, lines)


def insert_in_block(text: str, node: MappingNode, path: Sequence[str], value: Any) -> str:
    """Insert a new key after the last one with its value on the same line, or else before the first key."""
    on_a_line = [
        span(text, key, old)[1] for key, old in node.value if isinstance(old, ScalarNode) and old.style not in BLOCKS
    ]
    first = node.value[0][0].start_mark
    lines = block_lines(path, value, first.column)
    if on_a_line:
        return insert_after_line(text, on_a_line[-1], lines)
    start = first.index - first.column
    newline = line_ending(text)
    return f"{text[:start]}{''.join(line + newline for line in lines)}{text[start:]}"


def insert_after_line(text: str, index: int, lines: Iterator[str]) -> str:
    newline = line_ending(text)
    end = text.find("\n", index)
    before, rest = (f"{text}{newline}", "") if end < 0 else (text[: end + 1], text[end + 1 :])
    return f"{before}{''.join(line + newline for line in lines)}{rest}"


def insert_in_braces(text: str, node: MappingNode, path: Sequence[str], value: Any) -> str:
    """Append a new key to ``{...}`` as JSON, which is also YAML."""
    for name in reversed(path[1:]):
        value = {name: value}
    end = node.value[-1][1].end_mark.index if node.value else node.start_mark.index + 1
    return f"{text[:end]}{', ' if node.value else ''}{json.dumps(path[0])}: {json.dumps(value)}{text[end:]}"


def block_lines(path: Sequence[str], value: Any, column: int) -> Iterator[str]:
    *parents, last = path
    for depth, name in enumerate(parents):
        yield f"{' ' * (column + INDENT * depth)}{name}:"
    yield f"{' ' * (column + INDENT * len(parents))}{last}: {to_yaml(value)}"


def line_ending(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
