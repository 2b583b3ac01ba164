"""Reads configuration files, recognises their dialect, and edits values in place.

An edit changes only the text of a value, so the file keeps its comments, order, quotes and indentation.
"""

from __future__ import annotations

import codecs
import json
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
from reports.answers.configuration import command_lines, python_files, splices
from reports.answers.configuration.dialects import normalise
from reports.answers.configuration.dialects.recognition import DIALECTS, recognise
from reports.answers.configuration.dialects.trainers import NAMED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from reports.answers.configuration.command_lines import CommandPart
    from reports.answers.configuration.dialects import Dialect

SUFFIXES: Final = (".yaml", ".yml", ".json")
LARGEST: Final = 100_000  # bytes; a configuration is a page or two
DEEPEST: Final = 20  # nested brackets


@dataclass(frozen=True, kw_only=True, eq=False)
class Config:
    """A configuration file, or one role of a command line.

    ``values`` holds the values by dotted path, and also the mappings, as dicts. For a command line, ``program`` is what
    it starts, ``mentioned`` are the files that it names, and ``unresolved`` its variables without a value. ``imports``
    are the trainers that a script imports.
    """

    path: Path
    text: str
    dialect: Dialect
    values: Mapping[str, Any]
    encoding: str = "utf-8"
    program: str = ""
    mentioned: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    @property
    def editable(self) -> bool:
        """Tell if an edit can change the text. Command lines are read only."""
        return not self.program

    @property
    def purpose(self) -> str:
        """What the file is for, such as ``merge`` or ``inference``; empty for training."""
        return self.dialect.purpose(self.values, self.program)

    @property
    def trainer(self) -> str:
        """What the file trains with, such as ``sft`` or ``dpo``, also by the name of the program or of the file."""
        folder = self.path.parent.name if self.path.parent.name in NAMED else ""
        words = (self.program, self.path.stem, folder, *self.imports)
        return self.dialect.trainer(self.values, " ".join(words))


def read(path: Path) -> tuple[Config, ...]:
    """Read a configuration file, or a file with a command line, which can configure a launcher and a trainer.

    Raises:
        UserError: the file cannot be read, is not a mapping, has no known dialect, or its command starts no program.
    """
    raw = read_bytes(path)
    text = decode(raw, path)
    suffix = path.suffix.lower()
    if suffix == python_files.SUFFIX:
        return read_script(text, path)
    if suffix not in SUFFIXES and command_lines.has_command(text, suffix) and not is_mapping(text, path):
        return tuple(config_of(each, text, path) for each in command_lines.parse(text, path))
    config = parse(text, path)
    return (replace(config, encoding="utf-8-sig") if raw.startswith(codecs.BOM_UTF8) else config,)


def read_script(text: str, path: Path) -> tuple[Config, ...]:
    """Return the command in the docstring of a Python script, with the trainers that the script imports.

    Raises:
        UserError: the docstring has no command, or several different ones.
    """
    described = python_files.commands(text)
    if not command_lines.has_command(described):
        raise UserError(
            f"{path}: its docstring has no command that starts a training; give a file with the command, such as "
            "`accelerate launch`, and its options"
        )
    trainers = python_files.imported_trainers(text)
    parts = command_lines.parse(described, path)
    return tuple(replace(config_of(each, text, path), imports=trainers) for each in parts)


def is_mapping(text: str, path: Path) -> bool:
    """Tell if a text without a launch is a configuration, as a YAML file with the ending of a script."""
    if command_lines.has_command(text):
        return False
    try:
        parse(text, path)
    except UserError:
        return False
    return True


def config_of(part: CommandPart, text: str, path: Path) -> Config:
    return Config(
        path=path,
        text=text,
        dialect=part.dialect,
        values=dict(flat(part.values)),
        program=part.program,
        mentioned=part.mentioned,
        unresolved=part.unresolved,
    )


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of a mapping, including nested mappings, with its dotted path."""
    for name, value in values.items():
        yield f"{prefix}{name}", value
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")


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
    fault = json_fault(text)
    if "\t" in text and fault is None:
        text = text.replace("\t", " ")  # JSON may indent by tabs, YAML may not; every position stays the same
    try:
        refuse_anchors_and_deep_nesting(text, path)
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        if fault is not None and is_cut_off(text, fault):
            raise UserError(
                f"{path}:{fault.lineno}: the JSON ends before its last bracket; give the whole file"
            ) from None
        raise UserError(f"{path}{position(error)}: not valid YAML: {reason(error)}") from None
    except (YAMLError, RecursionError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "nested too deeply"
        raise UserError(f"{path}: not valid YAML: {first}") from None
    if isinstance(node, MappingNode) and not node.value:
        raise UserError(f"{path}: is an empty mapping; give --config a file with settings")
    if not isinstance(node, MappingNode):
        raise UserError(f"{path}: expected keys and values at the top, as in `key: value`")
    return node


def json_fault(text: str) -> json.JSONDecodeError | None:
    """Return why a text is not JSON; None for JSON."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error
    except RecursionError:
        pass
    return None


def is_cut_off(text: str, fault: json.JSONDecodeError) -> bool:
    """Tell if a text starts as JSON and ends too early, also within a string."""
    return text.lstrip().startswith("{") and (
        fault.pos >= len(text.rstrip()) or fault.msg.startswith("Unterminated string")
    )


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
    found = recognise(values)
    if found is None:
        names = ", ".join(each.name for each in DIALECTS)
        raise UserError(f"{path}: contains no keys of {names}; give --config a file of one of them")
    return found


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
