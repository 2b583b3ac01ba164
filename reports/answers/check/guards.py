"""Recognises code that runs only with some versions: it looks at a version, at what is there, or handles the error."""

from __future__ import annotations

import ast
import re
from typing import Final

from matrix.api_map.reading.handlers import handled_errors, names_in

# Words of tests that look at a version, or at what is installed or defined.
TESTS: Final = re.compile(
    r"version|VERSION|hasattr|getattr|signature|_available|is_\w*(?:greater|least|older|newer|below)"
    r"|find_spec|sys\.modules|dataclass_fields|__dict__|__annotations__|\bdir\b|\bvars\b|\binspect\b|TYPE_CHECKING"
)
HANDLED: Final = frozenset({"TypeError", "NameError", "OSError", "KeyError"})  # beside those of a failing import
ENDING: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def is_guard(test: ast.expr, variables: set[str]) -> bool:
    """Tell if a test looks at versions or availability; ``variables`` hold the results of such tests."""
    if TESTS.search(ast.unparse(test)):
        return True
    return any(isinstance(each, ast.Name) and each.id in variables for each in ast.walk(test))


def guard_variables(tree: ast.Module) -> set[str]:
    """Return the variables that hold the result of a test of versions or availability, or say that an import failed."""
    found: set[str] = set()
    for each in ast.walk(tree):
        match each:
            case ast.Assign(targets=targets, value=value) if is_test(value):
                found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            case ast.Try():
                found |= flags_of(each)
            case _:
                pass
    return found


def is_test(value: ast.expr) -> bool:
    """Tell if a value is the result of a test, not something else in which a version occurs."""
    return isinstance(value, ast.Compare | ast.Call | ast.BoolOp | ast.UnaryOp | ast.Attribute) and is_guard(
        value, set()
    )


def flags_of(statement: ast.Try) -> set[str]:
    """Return the names that a handler of a ``try`` sets to a constant, such as None or False."""
    if not handles(statement):
        return set()
    return {
        name.id
        for handler in statement.handlers
        for each in handler.body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)
        for target in each.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }


def handles(statement: ast.Try) -> bool:
    """Tell if a ``try`` goes on when a name or an argument in it is missing."""
    return bool(handled_errors(statement)) or any(
        handler.type is not None
        and not HANDLED.isdisjoint(names_in(handler.type))
        and not any(isinstance(each, ast.Raise) for each in handler.body)
        for handler in statement.handlers
    )


def ends(statements: list[ast.stmt]) -> bool:
    """Tell if a block leaves the code around it."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in {"exit", "quit", "sys.exit", "os._exit"}
    return isinstance(last, ENDING)
