"""Reads the keyword arguments that functions accept without stating them as parameters.

A function may take a keyword from its ``**kwargs``, as ``from_pretrained`` takes ``load_in_4bit``. A decorator may take
one before it calls the function, as huggingface_hub's ``validate_hf_hub_args`` takes ``use_auth_token``.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import counts_libraries
from matrix.api_map.reading.scopes import Function, parameter_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.reading.definitions import Definition
    from matrix.api_map.reading.names import Names

ACCEPTED: Final = "accepted"  # a keyword that a function takes from its keyword arguments
ALIAS: Final = "alias"  # the same, under a former name; the detail is the new one
CONSTRUCTORS: Final = frozenset({"__init__", "__new__"})

Keywords = dict[str, str]  # keyword -> the keyword as which it is passed on; empty if it is not


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield the functions of a module and the methods of its classes; a constructor has the name of its class."""
    for statement in tree.body:
        if isinstance(statement, Function):
            yield statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            for each in statement.body:
                if isinstance(each, Function):
                    is_constructor = each.name in CONSTRUCTORS
                    yield statement.name if is_constructor else f"{statement.name}.{each.name}", each


def accepted_keywords(tree: ast.Module, names: Names) -> Iterator[Definition]:
    """Yield the keywords that functions take from their ``**kwargs``, as parts of these functions."""
    if counts_libraries(names.module):
        for scope, function in functions(tree):
            if function.args.kwarg is not None:
                for keyword in taken(function, function.args.kwarg.arg):
                    yield f"{scope}.{keyword}", ACCEPTED, ""


def decorators(tree: ast.Module, names: Names) -> dict[str, list[str]]:
    """Return the dotted paths of the decorators of functions and methods that are functions of the same package."""
    found: dict[str, list[str]] = {}
    package = names.module.partition(".")[0]
    if counts_libraries(names.module):
        for scope, function in functions(tree):
            paths = [names.resolve(each) for each in function.decorator_list]
            own = [each for each in paths if each.startswith(f"{package}.")]
            if own:
                found[scope] = own
    return found


def translated_keywords(tree: ast.Module, names: Names) -> dict[str, Keywords]:
    """Return the keywords that decorators of a module take from those for the decorated function."""
    local = {each.name: each for each in tree.body if isinstance(each, Function)}
    found: dict[str, Keywords] = {}
    for name, decorator in local.items() if counts_libraries(names.module) else ():
        keywords: Keywords = {}
        for inner in decorator.body:
            if isinstance(inner, Function) and inner.args.kwarg is not None:
                keywords |= taken(inner, inner.args.kwarg.arg)
                for helper, parameter in helpers(inner, inner.args.kwarg.arg, local):
                    keywords |= taken(helper, parameter)
        if keywords:
            found[name] = keywords
    return found


def helpers(function: Function, keywords: str, local: dict[str, Function]) -> Iterator[tuple[Function, str]]:
    """Yield functions of the module that a function calls with its keyword arguments, and how they name these."""
    for each in ast.walk(function):
        match each:
            case ast.Call(func=ast.Name(id=name), keywords=passed) if name in local:
                for argument in passed:
                    if argument.arg is not None and is_name(argument.value, keywords):
                        yield local[name], argument.arg
            case _:
                pass


def taken(function: Function, keywords: str) -> Keywords:
    """Return the keywords that a function takes by ``pop`` or ``get`` from a mapping, or from a copy of it.

    A keyword whose value the function stores in the mapping under another name is passed on as that.
    """
    tables = {keywords, *copies(function, keywords)}
    found: Keywords = {}
    variables: dict[str, str] = {}  # of the values that were taken
    nodes = list(reading(function, keywords))
    for each in nodes:
        found |= {name: found.get(name, "") for name in taken_by(each, tables)}
        match each:
            case ast.Assign(targets=[ast.Name(id=variable)], value=value):
                variables.update((variable, name) for name in taken_by(value, tables))
            case _:
                pass
    for each in nodes:
        match each:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str(new)))],
                value=ast.Name(id=variable),
            ) if table in tables and variable in variables:
                found[variables[variable]] = new
            case _:
                pass
    return found


def reading(function: Function, mapping: str) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without inner functions that have a parameter of a mapping's name."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop(0)
        if not (isinstance(node, Function | ast.Lambda) and mapping in parameter_names(node)):
            yield node
            waiting.extend(ast.iter_child_nodes(node))


def copies(function: Function, keywords: str) -> Iterator[str]:
    """Yield the variables that hold a copy of a mapping."""
    for each in ast.walk(function):
        match each:
            case ast.Assign(
                targets=[ast.Name(id=copy)],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=source), attr="copy")),
            ) if source == keywords:
                yield copy
            case _:
                pass


def taken_by(node: ast.AST, tables: set[str]) -> Iterator[str]:
    """Yield the keyword that an expression takes from one of some mappings, if it is such a call."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=table), attr="pop" | "get"),
            args=[ast.Constant(value=str(name)), *_],
        ) if table in tables:
            yield name


def is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
