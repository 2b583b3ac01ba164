"""Reads what lazy modules export: dictionaries of names by submodule, ``__all__``, and module ``__getattr__``."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from matrix.api_map.reading.definitions import top_level
from matrix.api_map.reading.needs import FileRule, file_rules, needed, required_backends, under_conditions

if TYPE_CHECKING:
    from matrix.api_map.reading.names import Names

STRUCTURES: Final = frozenset({"_import_structure", "import_structure", "_SUBMOD_ATTRS"})

FILE_RULES: Final = "BASE_FILE_REQUIREMENTS"


@dataclass(kw_only=True)
class LazyExports:
    """The exports of one module.

    Attributes:
        names: exported name -> submodule.
        submodules: submodules that are attributes although nothing imports them.
        scanned: folder prefixes below the module whose files' ``__all__`` are exported; ``""`` is its own folder.
        listed: ``__all__``, if it is a literal.
        required: class or function with ``@requires``, which ``scanned`` exports as well -> packages that it needs.
        needed: exported name -> conditions under which it is exported, if there are any.
        rules: which packages a scanned file needs.
        answered: names for which the module's ``__getattr__`` looks.
        dynamic: the module answers for names that cannot be read.
    """

    names: dict[str, str] = field(default_factory=dict)
    submodules: list[str] = field(default_factory=list)
    scanned: list[str] = field(default_factory=list)
    listed: list[str] | None = None
    required: dict[str, list[str]] = field(default_factory=dict)
    needed: dict[str, str] = field(default_factory=dict)
    rules: list[FileRule] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    dynamic: bool = False


def lazy_exports(tree: ast.Module, names: Names) -> LazyExports:
    found = LazyExports()
    for statement, held in under_conditions(tree.body, names.resolve):
        match statement:
            case ast.FunctionDef(name="__getattr__"):
                found.answered += answered_names(statement, tables(tree))
                found.dynamic |= not found.answered
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                backends = required_backends(statement)
                if backends is not None:
                    found.required[name] = backends
            case _:
                read_structure(found, statement)
                listed = LazyExports()
                read_structure(listed, statement)
                for name in listed.names:
                    conditions = needed(held)
                    found.needed[name] = conditions if found.needed.get(name, conditions) == conditions else ""
    if not found.listed:  # a module that scans folders lists nothing itself
        found.scanned = list(dict.fromkeys(scanned_folders(tree)))
    return found


def read_structure(found: LazyExports, statement: ast.stmt) -> None:
    match statement:
        case ast.Assign(targets=[target], value=value):
            read_assignment(found, target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            read_assignment(found, target, value)
        case ast.AugAssign(target=target, value=value):
            read_extension(found, target, value)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=target, attr="extend" | "append" | "update"), args=[value])
        ):
            read_extension(found, target, value)
        case _:
            pass


def read_assignment(found: LazyExports, target: ast.expr, value: ast.expr) -> None:
    match target:
        case ast.Name(id=name) if name in STRUCTURES and isinstance(value, ast.Dict):
            for key, names in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant):
                    add_names(found, str(key.value), names)
        case ast.Name(id=name) if name.endswith("MODULE_ALIASES") and isinstance(value, ast.Dict):
            found.submodules += texts(ast.List(elts=[each for each in value.keys if each is not None]))
        case ast.Name(id="__all__"):
            found.listed = texts(value)
        case ast.Name(id=name) if name == FILE_RULES:
            found.rules = file_rules(value)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)) if name in STRUCTURES:
            add_names(found, str(key), value)
        case ast.Tuple(elts=elements) if any(getattr(each, "id", "") == "__getattr__" for each in elements):
            pass  # a lazy loader attached to the dictionary that was read
        case _:
            pass


def read_extension(found: LazyExports, target: ast.expr, value: ast.expr) -> None:
    match target:
        case ast.Name(id="__all__"):
            found.listed = [*(found.listed or ()), *texts(value)]
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)) if name in STRUCTURES:
            add_names(found, str(key), value)
        case ast.Name(id=name) if name in STRUCTURES and isinstance(value, ast.Dict):
            read_assignment(found, target, value)
        case _:
            pass


def add_names(found: LazyExports, submodule: str, names: ast.expr) -> None:
    found.submodules.append(submodule)
    for name in texts(names):
        found.names[name] = submodule


def texts(node: ast.expr) -> list[str]:
    """Return the literal texts of an expression, such as a list, or a comprehension's literal parts."""
    return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def answered_names(function: ast.FunctionDef, known: dict[str, ast.expr]) -> list[str]:
    """Return the names that a ``__getattr__`` compares its argument with, or looks up in tables of its module."""
    found: list[str] = []
    for each in ast.walk(function):
        match each:
            case ast.Compare(left=left, comparators=[ast.Name(id=table)]) if table in known:
                found += [*texts(left), *keys_of(known[table])]
            case ast.Compare(left=left, comparators=comparators):
                found += [text for part in (left, *comparators) for text in texts(part)]
            case ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="get")) if table in known:
                found += keys_of(known[table])
            case _:
                pass
    return list(dict.fromkeys(found))


def tables(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the dictionaries, sets and lists that a module states, by their variables."""
    found: dict[str, ast.expr] = {}
    for statement in top_level(tree.body):
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if isinstance(value, ast.Dict | ast.Set | ast.List | ast.Tuple):
                found[name] = value
            case _:
                pass
    return found


def keys_of(table: ast.expr) -> list[str]:
    if isinstance(table, ast.Dict):
        return texts(ast.List(elts=[each for each in table.keys if isinstance(each, ast.Constant)]))
    return texts(table)


def scanned_folders(tree: ast.Module) -> list[str]:
    """Return the folders that calls of ``define_import_structure`` scan, relative to the module."""
    found = []
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] == "define_import_structure":
            prefix = next((word.value for word in each.keywords if word.arg == "prefix"), None)
            found.append(str(prefix.value) if isinstance(prefix, ast.Constant) else "")
    return found
