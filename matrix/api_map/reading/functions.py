"""Reads what functions use if they are called while a module is imported.

A use counts only if it certainly runs: not in a loop, not behind a return that cannot be told, and not in an inner
function.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, TypedDict

from matrix.api_map.packages import counts_libraries
from matrix.api_map.reading.arguments import parameters_of
from matrix.api_map.reading.conditions import ARGUMENT, FUNCTION, LEAVING, OTHER, TRY, conditions_after, opposite_of
from matrix.api_map.reading.keywords import functions
from matrix.api_map.reading.scopes import otherwise_bound, own_statements, variables, yields
from matrix.api_map.reading.uses import UseReader

if TYPE_CHECKING:
    from matrix.api_map.reading.arguments import Parameter
    from matrix.api_map.reading.names import Names
    from matrix.api_map.reading.scopes import Comprehension, Function
    from matrix.api_map.reading.uses import Use

NEVER: Final = frozenset({FUNCTION, OTHER, TRY})  # under these conditions a use says nothing


class FunctionFacts(TypedDict):
    """The parameters of a function, and its uses."""

    parameters: list[Parameter]
    uses: list[Use]


class FunctionReader(UseReader):
    """Collects the uses in the body of a function. Paths of its parameters begin with ``arg:``."""

    def __init__(self, names: Names, function: Function, *, annotated: bool) -> None:
        super().__init__(names)
        self.annotated = annotated
        arguments = function.args
        stated = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        stated -= {name for each in own_statements(function.body) for name in otherwise_bound(each)}
        own = variables(function)
        self.bound.append({each: f"{ARGUMENT}{each}" if each in stated else "" for each in own})

    def held_after(self, statement: ast.stmt) -> list[str]:
        """Return the conditions behind a statement: that no test returned, and that no known check raised."""
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return []
            case ast.If(test=test, body=[*before, ast.Raise()], orelse=[]) if not any(map(leaves, before)):
                return conditions_after(statement, self.resolve)
            case ast.If(test=test, body=[*_, last], orelse=[]) if isinstance(last, LEAVING):
                return opposite_of(test, self.resolve)
        return [OTHER] if leaves(statement) else []

    def visit_Name(self, node: ast.Name) -> None:  # noqa: N802 - ast names it
        """Forget what is known of a parameter that gets another value."""
        if not isinstance(node.ctx, ast.Load):
            for table in reversed(self.bound):
                if node.id in table:
                    table[node.id] = table[node.id] if not table[node.id].startswith(ARGUMENT) else ""
                    return

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:  # noqa: N802 - ast names it
        self.visit(node.iter)
        with self.under(OTHER):
            self.visit(node.target)
            self.visit_all([*node.body, *node.orelse])

    visit_AsyncFor = visit_For  # noqa: N815 - ast names it

    def visit_While(self, node: ast.While) -> None:  # noqa: N802 - ast names it
        with self.under(OTHER):
            self.generic_visit(node)

    def visit_inside(self, node: Comprehension) -> None:
        with self.under(OTHER):
            super().visit_inside(node)


def leaves(statement: ast.stmt) -> bool:
    return any(isinstance(each, LEAVING) for each in ast.walk(statement))


def called_functions(tree: ast.Module, names: Names) -> dict[str, FunctionFacts]:
    """Return what the functions of a module use when they are called; a constructor has the name of its class.

    Of several functions of one name the last counts.
    """
    found: dict[str, FunctionFacts] = {}
    if not counts_libraries(names.module):
        return found
    annotated = not postpones_annotations(tree)
    classes = {each.name for each in tree.body if isinstance(each, ast.ClassDef)}
    for name, function in functions(tree):
        if "." in name:
            continue
        if name not in classes:
            found.pop(name, None)
        if isinstance(function, ast.FunctionDef) and not yields(function):
            reader = FunctionReader(names, function, annotated=annotated)
            reader.visit_all(function.body)
            uses = [each for each in reader.found if NEVER.isdisjoint(each[2].split(";"))]
            if uses:
                parameters = parameters_of(function.args, is_constructor=name in classes)
                found[name] = FunctionFacts(parameters=parameters, uses=uses)
    return found


def postpones_annotations(tree: ast.Module) -> bool:
    return any(
        isinstance(each, ast.ImportFrom)
        and each.module == "__future__"
        and any(one.name == "annotations" for one in each.names)
        for each in tree.body
    )
