"""Reads what functions use if they are called while a module is imported.

A use counts only if it certainly runs: not in a loop, not behind a return that cannot be told, and not in an inner
function.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, TypedDict

from matrix.api_map.packages import counts_libraries
from matrix.api_map.reading.arguments import parameters_of
from matrix.api_map.reading.conditions import ARGUMENT, FUNCTION, LEAVING, OTHER, TRY, opposite_of
from matrix.api_map.reading.keywords import functions
from matrix.api_map.reading.uses import UseReader

if TYPE_CHECKING:
    from matrix.api_map.reading.keywords import Function
    from matrix.api_map.reading.names import Names
    from matrix.api_map.reading.uses import Use

NEVER: Final = frozenset({FUNCTION, OTHER, TRY})  # under these conditions a use says nothing


class FunctionFacts(TypedDict):
    """The parameters of a function, each with the text of its default, and its uses."""

    parameters: list[tuple[str, str]]
    uses: list[Use]


class FunctionReader(UseReader):
    """Collects the uses in the body of a function. Paths of its parameters begin with ``arg:``."""

    def __init__(self, names: Names, function: Function) -> None:
        super().__init__(names)
        self.bound.append({})
        arguments = function.args
        stated = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        self.parameters = {each.arg for each in stated}
        self.variables = {each.id for each in ast.walk(function) if is_stored(each)}  # type: ignore[attr-defined]

    def resolve(self, node: ast.expr) -> str:
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and not any(root.id in table for table in self.bound):
            if root.id in self.parameters:
                return ARGUMENT + ast.unparse(node)
            if root.id in self.variables:
                return ""
        return super().resolve(node)

    def held_after(self, statement: ast.stmt) -> list[str]:
        """Return the conditions behind a statement: that no test returned, and that no known check raised."""
        match statement:
            case ast.If(test=test, body=[*_, ast.Raise()], orelse=[]):
                return super().held_after(statement)
            case ast.If(test=test, body=[*_, last], orelse=[]) if isinstance(last, LEAVING):
                return opposite_of(test, self.resolve)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return []
        return [OTHER] if any(isinstance(each, LEAVING) for each in ast.walk(statement)) else []

    def visit_Name(self, node: ast.Name) -> None:  # noqa: N802 - ast names it
        if is_stored(node):
            self.parameters.discard(node.id)

    def visit_For(self, node: ast.For) -> None:  # noqa: N802 - ast names it
        self.visit(node.iter)
        with self.under(OTHER):
            self.visit(node.target)
            self.visit_all(node.body)

    def visit_perhaps(self, node: ast.AST) -> None:
        """Read what may not run: the body of a loop or of a comprehension."""
        with self.under(OTHER):
            self.generic_visit(node)

    visit_AsyncFor = visit_While = visit_Match = visit_perhaps  # noqa: N815 - ast names them
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_perhaps  # noqa: N815


def is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def called_functions(tree: ast.Module, names: Names) -> dict[str, FunctionFacts]:
    """Return what the functions of a module use when they are called; a constructor has the name of its class."""
    found: dict[str, FunctionFacts] = {}
    for name, function in functions(tree) if counts_libraries(names.module) else ():
        if "." not in name and isinstance(function, ast.FunctionDef) and not yields(function):
            reader = FunctionReader(names, function)
            reader.visit_all(function.body)
            uses = [each for each in reader.found if NEVER.isdisjoint(each[2].split(";"))]
            if uses:
                found[name] = FunctionFacts(parameters=parameters_of(function.args), uses=uses)
    return found


def yields(function: Function) -> bool:
    return any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(function))
