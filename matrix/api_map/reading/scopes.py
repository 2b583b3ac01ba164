"""Tells which names a function, a lambda or a comprehension binds itself, so that they mean nothing of the module."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def parameter_names(function: Function | ast.Lambda) -> Iterator[str]:
    """Yield the names of all parameters, also of ``*args`` and ``**kwargs``."""
    stated = function.args
    for each in (*stated.posonlyargs, *stated.args, stated.vararg, *stated.kwonlyargs, stated.kwarg):
        if each is not None:
            yield each.arg


def variables(function: Function | ast.Lambda) -> set[str]:
    """Return the parameters and variables of a function, without those that only a walrus binds.

    A variable that it imports as well does not count, because the other binding mostly stands for an import that
    failed, nor does one that it declares as ``global`` or ``nonlocal``.
    """
    parameters = {*parameter_names(function)}
    if isinstance(function, ast.Lambda):
        return parameters
    found: set[str] = set()
    others: set[str] = set()
    for each in own_statements(function.body):
        if isinstance(each, ast.Global | ast.Nonlocal):
            others.update(each.names)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            others.update(one.asname or one.name.partition(".")[0] for one in each.names)
        else:
            found.update(name.id for target in targets_of(each) for name in stored_names(target))
            found.update(otherwise_bound(each))
    return parameters | (found - others)


def own_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body and of its branches, but not those of inner functions and classes."""
    waiting = list(reversed(body))
    while waiting:
        statement = waiting.pop()
        yield statement
        if not isinstance(statement, NAMED):
            waiting.extend(reversed(inner_statements(statement)))


def inner_statements(statement: ast.stmt) -> list[ast.stmt]:
    """Return the statements of all branches of a compound statement, in order."""
    found: list[ast.stmt] = [*getattr(statement, "body", ())]
    for branch in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        found += branch.body
    return [*found, *getattr(statement, "orelse", ()), *getattr(statement, "finalbody", ())]


def targets_of(statement: ast.stmt) -> list[ast.expr]:
    """Return the expressions to which a statement assigns, without those of the statements in it."""
    match statement:
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return [target]
        case ast.For(target=target) | ast.AsyncFor(target=target):
            return [target]
        case ast.With(items=items) | ast.AsyncWith(items=items):
            return [each.optional_vars for each in items if each.optional_vars is not None]
    return []


def otherwise_bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds as a function, a class, a handled error or a part of a pattern."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Try(handlers=handlers) | ast.TryStar(handlers=handlers):
            yield from (each.name for each in handlers if each.name is not None)
        case ast.Match(cases=cases):
            for each in (part for case in cases for part in ast.walk(case.pattern)):
                found: str | None = getattr(each, "name", None) or getattr(each, "rest", None)
                if found is not None:
                    yield found


def stored_names(target: ast.expr) -> list[ast.Name]:
    return [each for each in ast.walk(target) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, but not those of the bodies of inner functions and classes."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, INNER):
            waiting.extend(ast.iter_child_nodes(node))


def yields(function: Function) -> bool:
    """Tell if a call of a function only makes a generator."""
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in own_nodes(function))
