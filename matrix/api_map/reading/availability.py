"""Reads what functions such as ``is_vllm_available`` return: their callers test it, and a pair is always true.

Newer releases of transformers return a pair from ``_is_package_available``. Packages that test its result as a truth
value then import libraries that are not there.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import PACKAGES, counts_libraries
from matrix.api_map.reading.conditions import AVAILABLE, opposite_of
from matrix.api_map.reading.scopes import own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.reading.definitions import Definition
    from matrix.api_map.reading.names import Names

RETURNED: Final = "returned"
ASKS: Final = "asks"  # conditions without which a function returns False
PAIR: Final = "pair"


def returned(tree: ast.Module, names: Names) -> Iterator[Definition]:
    """Yield for each function that tells if a package is available what it returns, if that is another function's.

    The detail is ``pair`` if each ``return`` has a tuple, else the dotted path of the function whose result it returns.
    """
    if not counts_libraries(names.module):
        return
    called = {
        target.id: path
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and (path := availability_call(statement.value, names))
    }
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and AVAILABLE.fullmatch(statement.name):
            values = [each.value for each in own_nodes(statement) if isinstance(each, ast.Return)]
            if values and all(isinstance(each, ast.Tuple) and each.elts for each in values):
                yield statement.name, RETURNED, PAIR
            elif len(values) == 1 and values[0] is not None:
                value = values[0]
                source = called.get(value.id, "") if isinstance(value, ast.Name) else availability_call(value, names)
                if source:
                    yield statement.name, RETURNED, source


def asked(tree: ast.Module, names: Names) -> Iterator[Definition]:
    """Yield for each function that tells if a package is available which others it asks for first.

    ``is_accelerate_available`` of newer releases of transformers begins with ``if not is_torch_available(): return
    False``.
    """
    for function in tree.body if counts_libraries(names.module) else ():
        if isinstance(function, ast.FunctionDef) and AVAILABLE.fullmatch(function.name):
            found = list(asked_first(function, names))
            if found:
                yield function.name, ASKS, ";".join(found)


def asked_first(function: ast.FunctionDef, names: Names) -> Iterator[str]:
    for statement in function.body:
        match statement:
            case ast.If(test=test, body=[ast.Return(value=ast.Constant(value=False))], orelse=[]):
                yield from (each for each in opposite_of(test, names.resolve) if each.startswith("has:"))
            case _ if any(isinstance(each, ast.Return) for each in ast.walk(statement)):
                return


def availability_call(value: ast.expr, names: Names) -> str:
    """Return the dotted path of a function of the packages that an expression calls; empty for anything else."""
    if not isinstance(value, ast.Call):
        return ""
    path = names.resolve(value.func)
    is_known = path.partition(".")[0] in PACKAGES and AVAILABLE.fullmatch(path.rpartition(".")[2])
    return path if is_known else ""
