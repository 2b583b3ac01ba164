"""Reads calls: the keyword arguments that code passes to the stack, and what is decided only when it runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import PACKAGES
from reports.answers.check.uses import OptionOwner, StatedMinimum
from reports.answers.check.values import Instance, Named, OwnClass, OwnInstance, Parser

if TYPE_CHECKING:
    from reports.answers.check.statements import StatementReader

RUN_TEXT: Final = frozenset({"exec", "eval"})
IMPORTERS: Final = frozenset({"__import__", "importlib.import_module", "import_module"})
LOOK_UPS: Final = frozenset({"getattr", "hasattr", "operator.attrgetter"})
NAMED_PLACES: Final = 2  # of `getattr`: the object and the name
MINIMUM: Final = "transformers.utils.check_min_version"


def read_call(reader: StatementReader, node: ast.Call) -> None:
    """Record the keyword arguments of a call that reaches the stack."""
    written = ast.unparse(node.func)
    if written in LOOK_UPS:
        read_look_up(reader, node)
        return
    if written in IMPORTERS:
        read_import(reader, node)
        return
    callee = reader.value(node.func)
    if isinstance(callee, Named) and callee.path in {MINIMUM, "transformers.check_min_version"}:
        read_minimum(reader, node)
    if isinstance(parser := reader.value(node), Parser):
        read_options(reader, parser)
    called = called_paths(reader, node)
    if not called:
        return
    own_fields = callee if isinstance(callee, OwnClass) else None
    for name, value in keywords(node):
        if name is not None and (own_fields is None or not own_fields.has(name)):
            reader.use([f"{each}({name})" for each in called], value)
        elif name is None:
            reader.dynamic(node, f"arguments of {written} that are built at run time (`**{ast.unparse(value)[:40]}`)")


def keywords(node: ast.Call) -> list[tuple[str | None, ast.expr]]:
    """Return the keyword arguments, with those of ``**dict(...)`` and ``**{...}``; None stands for other mappings."""
    found: list[tuple[str | None, ast.expr]] = []
    for each in node.keywords:
        match each:
            case ast.keyword(arg=str(name), value=value):
                found.append((name, value))
            case ast.keyword(value=ast.Call(func=ast.Name(id="dict"), args=[]) as inner):
                found += keywords(inner)
            case ast.keyword(value=ast.Dict(keys=keys, values=values)):
                for key, value in zip(keys, values, strict=True):
                    literal = isinstance(key, ast.Constant) and isinstance(key.value, str)
                    found.append(
                        (str(key.value), value) if literal and isinstance(key, ast.Constant) else (None, value)
                    )
            case _:
                found.append((None, each.value))
    return found


def called_paths(reader: StatementReader, node: ast.Call) -> list[str]:
    """Return the functions, classes or methods of the stack that a call may reach."""
    match node.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=method):
            return super_paths(reader, method)
        case ast.Attribute(value=inner, attr=method) if not isinstance(reader.value(inner), Named):
            return method_paths(reader, node.func) if method not in reader.assigned else []
    match reader.value(node.func):
        case Named(path=path) if path.partition(".")[0] in PACKAGES:
            return [path]
        case OwnClass() as own if own.is_known and not own.has("__init__"):
            return list(own.stack_bases)
        case _:
            return []


def method_paths(reader: StatementReader, node: ast.Attribute) -> list[str]:
    owner = reader.value(node.value)
    return reader.attribute_paths(node) if isinstance(owner, Instance | OwnInstance | OwnClass) else []


def super_paths(reader: StatementReader, method: str) -> list[str]:
    own = reader.owner
    if own is None or not own.is_known or any(isinstance(each, OwnClass) and each.has(method) for each in own.bases):
        return []
    return [base if method == "__init__" else f"{base}.{method}" for base in own.stack_bases]


def read_look_up(reader: StatementReader, node: ast.Call) -> None:
    """Note names that are looked up at run time; a constant name with a default, or only tested, asks for nothing."""
    if len(node.args) < NAMED_PLACES or not isinstance(reader.value(node.args[0]), Named | Instance):
        return
    if not isinstance(node.args[1], ast.Constant):
        reader.dynamic(node, f"a name that is looked up at run time (`{ast.unparse(node)[:60]}`)")


def read_import(reader: StatementReader, node: ast.Call) -> None:
    match node.args:
        case [ast.Constant(value=str(name)), *_]:
            if name.partition(".")[0] in PACKAGES:
                reader.use([name], node)
        case _:
            reader.dynamic(node, f"a module that is imported at run time (`{ast.unparse(node)[:60]}`)")


def read_minimum(reader: StatementReader, node: ast.Call) -> None:
    match node.args:
        case [ast.Constant(value=str(version))] if not reader.guard:
            place = reader.source.place(node.lineno)
            reader.found.stated.append(StatedMinimum(package="transformers", specifier=f">={version}", place=place))
        case _:
            reader.dynamic(node, "a minimum release that is built at run time")


def read_options(reader: StatementReader, parser: Parser) -> None:
    """Record the classes whose fields are the options of the script."""
    paths = [each.path for each in parser.classes if isinstance(each, Named)]
    own = [each for each in parser.classes if isinstance(each, OwnClass)]
    paths += [base for each in own for base in each.stack_bases]
    fields = frozenset(name for each in own for name in each.members)
    reader.found.options.append(OptionOwner(paths=tuple(paths), own_fields=fields))
