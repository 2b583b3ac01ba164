"""Finds the functions of a source file, and the parts of them whose mutation could change what a job computes.

Logs, warnings, error messages, type checks, assertions and branches for tracing are left alone: they decide no number.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
SHOWN_ONLY: Final = frozenset({"__repr__", "__str__", "extra_repr", "__dir__", "__doc__", "_get_name"})
TALKS: Final = re.compile(
    r"(^|\.)(_?logger|_?logging|log|warnings|warn|warn_once|warning_once|print|warning|info|debug|log_once|tqdm"
    r"|_log_api_usage_once|_warning_once|deprecate_kwarg)(\.|$)"
)
TYPE_CHECKS: Final = frozenset({"isinstance", "issubclass", "hasattr", "callable", "cast", "TypeVar", "type"})
TRACING: Final = re.compile(
    r"is_(jit_)?tracing|is_torchdynamo|is_compiling|is_torch_fx|is_scripting|is_dynamo|TYPE_CHECKING"
)
JIT: Final = re.compile(r"jit\.(script|ignore|unused)|triton")


@dataclass(frozen=True)
class Function:
    """A function with the qualified name of the outermost function around it.

    ``assigned`` has the first line in which each local name gets a value.
    """

    name: str
    outermost: str
    node: Any
    assigned: dict[str, int] = field(default_factory=dict)

    @property
    def method(self) -> str:
        return str(self.node.name)


def functions(tree: ast.Module) -> Iterator[Function]:
    """The functions of a module and of its classes, with those inside them, except those that only show things."""
    yield from inside(tree, "", "")


def inside(owner: ast.AST, prefix: str, outermost: str) -> Iterator[Function]:
    for node in ast.iter_child_nodes(owner):
        if isinstance(node, FUNCTIONS):
            name = f"{prefix}{node.name}"
            if node.name in SHOWN_ONLY or any(JIT.search(ast.unparse(each)) for each in node.decorator_list):
                continue
            yield Function(name, outermost or name, node, first_assignments(node))
            yield from inside(node, f"{name}.<locals>.", outermost or name)
        elif isinstance(node, ast.ClassDef):
            yield from inside(node, f"{prefix}{node.name}.", outermost)
        elif isinstance(node, ast.stmt):
            yield from inside(node, prefix, outermost)


def first_assignments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, int]:
    arguments = node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    found = {each.arg: node.lineno for each in every if each is not None}
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            found[each.id] = min(found.get(each.id, each.lineno), each.lineno)
    return found


def nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's own body that may be mutated."""
    for child in function.node.body:
        yield from mutable(child)


def mutable(node: ast.AST) -> Iterator[ast.AST]:
    if is_left_alone(node):
        return
    yield node
    for name, child in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_comment", "func"} and name != "func":
            continue
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST):
                yield from mutable(each)


def is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return not isinstance(node, ast.Lambda)  # functions inside are found on their own
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global, ast.Delete)):
        return True
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        return bool(TALKS.search(name)) or name in TYPE_CHECKS
    if isinstance(node, (ast.If, ast.IfExp)):
        return bool(TRACING.search(ast.unparse(node.test))) or (isinstance(node, ast.If) and only_talks(node))
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or (isinstance(node.value, ast.Call) and is_left_alone(node.value))
    return False


def only_talks(node: ast.If) -> bool:
    """Return whether a branch does nothing but raise, log or warn; then its condition decides no number."""
    return not node.orelse and all(isinstance(each, ast.Raise) or is_left_alone(each) for each in node.body)


def import_time_statements(tree: ast.Module) -> int:
    """The number of statements that run at import: those of the module and of its classes, without definitions."""
    count = 0
    waiting: list[Any] = [tree]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.stmt) and not isinstance(node, FUNCTIONS):
                waiting.append(node)
                count += not isinstance(node, (ast.ClassDef, ast.Import, ast.ImportFrom)) and not is_left_alone(node)
    return count
