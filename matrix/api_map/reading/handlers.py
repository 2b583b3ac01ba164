"""Reads which errors of a missing name a ``try`` statement, or ``contextlib.suppress``, handles."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

IMPORT_ERROR: Final = "ImportError"
ATTRIBUTE_ERROR: Final = "AttributeError"
TYPE_ERROR: Final = "TypeError"  # of a keyword argument
GENERAL: Final = frozenset({"Exception", "BaseException"})
CAUGHT_BY: Final = {
    IMPORT_ERROR: GENERAL | {IMPORT_ERROR, "ModuleNotFoundError"},
    ATTRIBUTE_ERROR: GENERAL | {ATTRIBUTE_ERROR},
    TYPE_ERROR: GENERAL | {TYPE_ERROR},
}


def handled_errors(statement: ast.Try | ast.TryStar) -> frozenset[str]:
    """Return the errors after which the code behind a ``try`` goes on: the first handler that fits does not raise."""
    return frozenset(
        error for error, names in CAUGHT_BY.items() if goes_on(next(fitting(statement.handlers, names), None))
    )


def fitting(handlers: list[ast.ExceptHandler], names: frozenset[str]) -> Iterator[ast.ExceptHandler]:
    for each in handlers:
        if each.type is None or not names.isdisjoint(names_in(each.type)):
            yield each


def goes_on(handler: ast.ExceptHandler | None) -> bool:
    return handler is not None and not any(isinstance(each, ast.Raise) for each in handler.body)


def suppressed_errors(statement: ast.With | ast.AsyncWith) -> frozenset[str]:
    """Return the errors that ``with contextlib.suppress(...)`` handles."""
    listed = {
        name
        for item in statement.items
        if isinstance(item.context_expr, ast.Call) and "suppress" in names_in(item.context_expr.func)
        for argument in item.context_expr.args
        for name in names_in(argument)
    }
    return frozenset(error for error, names in CAUGHT_BY.items() if listed & names)


def names_in(node: ast.expr) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
