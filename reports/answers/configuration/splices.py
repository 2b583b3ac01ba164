"""Replaces or inserts a value in a YAML or JSON text without changing anything else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ruamel.yaml.nodes import MappingNode, ScalarNode

from reports.answers.configuration.dialects import UnwritableError, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

INDENT: Final = 2
BLOCKS: Final = ("|", ">")
QUOTES: Final = ("'", '"')


def put(text: str, node: MappingNode, path: Sequence[str], value: Any) -> str:
    """The text in which the value at a path below a mapping is another; ``None`` empties a key that is there.

    Raises:
        UnwritableError: a value cannot be put there, such as one within a list.
    """
    name, *rest = path
    for key, old in node.value:
        if key.value != name:
            continue
        if rest and isinstance(old, MappingNode):
            return put(text, old, rest, value)
        if not rest and isinstance(old, ScalarNode):
            return replaced(text, key, old, formatted(value, old, node))
        if rest and isinstance(old, ScalarNode) and plain(old.value) is None and not node.flow_style:
            return filled(text, key, old, block(rest, value, key.start_mark.column + INDENT))
        raise UnwritableError(".".join(path))
    if value is None:
        return text
    return in_braces(text, node, path, value) if node.flow_style else below(text, node, path, value)


def replaced(text: str, key: ScalarNode, old: ScalarNode, new: str) -> str:
    start, end = span(text, key, old)
    gap = " " if new and text[start - 1] == ":" else ""
    return f"{text[:start]}{gap}{new}{text[end:]}"


def span(text: str, key: ScalarNode, value: ScalarNode) -> tuple[int, int]:
    """Where a value stands. One that is left empty is marked at whatever follows: it belongs behind its colon."""
    if value.start_mark.index == value.end_mark.index:
        colon = text.index(":", key.end_mark.index) + 1
        return colon, colon
    return value.start_mark.index, value.end_mark.index


def formatted(value: Any, like: ScalarNode, within: MappingNode) -> str:
    """A value as the one in its place was written: in its quotes, and in its case."""
    if value is None:
        return "null" if within.flow_style else ""
    if isinstance(value, bool):
        word = spelled(value)
        return word.capitalize() if like.value[:1].isupper() else word
    if like.style in QUOTES:
        return f"{like.style}{value}{like.style}"
    return json.dumps(value) if within.flow_style else spelled(value)


def spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    is_flag = isinstance(value, str) and isinstance(plain(value), bool)  # a word that YAML would take for one
    return f"'{value}'" if is_flag else str(value)


def filled(text: str, key: ScalarNode, old: ScalarNode, lines: Iterator[str]) -> str:
    """A mapping in the place of nothing."""
    start, end = span(text, key, old)
    without = f"{text[:start].rstrip(' ')}{text[end:]}"
    return after_line(without, key.end_mark.index, lines)


def below(text: str, node: MappingNode, path: Sequence[str], value: Any) -> str:
    """A new key after the last one whose value is on its line; failing that, before the first."""
    on_a_line = [
        span(text, key, old)[1] for key, old in node.value if isinstance(old, ScalarNode) and old.style not in BLOCKS
    ]
    first = node.value[0][0].start_mark
    lines = block(path, value, first.column)
    if on_a_line:
        return after_line(text, on_a_line[-1], lines)
    start = first.index - first.column
    newline = end_of_lines(text)
    return f"{text[:start]}{''.join(line + newline for line in lines)}{text[start:]}"


def after_line(text: str, index: int, lines: Iterator[str]) -> str:
    newline = end_of_lines(text)
    end = text.find("\n", index)
    before, rest = (f"{text}{newline}", "") if end < 0 else (text[: end + 1], text[end + 1 :])
    return f"{before}{''.join(line + newline for line in lines)}{rest}"


def in_braces(text: str, node: MappingNode, path: Sequence[str], value: Any) -> str:
    """A new key at the end of ``{...}``, as JSON, which is YAML as well."""
    for name in reversed(path[1:]):
        value = {name: value}
    end = node.value[-1][1].end_mark.index if node.value else node.start_mark.index + 1
    return f"{text[:end]}{', ' if node.value else ''}{json.dumps(path[0])}: {json.dumps(value)}{text[end:]}"


def block(path: Sequence[str], value: Any, column: int) -> Iterator[str]:
    *parents, last = path
    for depth, name in enumerate(parents):
        yield f"{' ' * (column + INDENT * depth)}{name}:"
    yield f"{' ' * (column + INDENT * len(parents))}{last}: {spelled(value)}"


def end_of_lines(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
