"""Reads the conditions under which a statement runs: functions, exceptions, versions, and what is installed.

A condition is a short text: ``function``, ``try`` (an exception of the import is handled), ``typing``
(``TYPE_CHECKING``), ``has:NAME`` (an availability check), ``ver:NAME>=1.2`` (a version check), ``ref:MODULE.NAME`` (a
variable that holds a condition) or ``if`` (anything else). ``!`` negates it.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FUNCTION: Final = "function"
TRY: Final = "try"
TYPING: Final = "typing"
OTHER: Final = "if"

AVAILABLE: Final = re.compile(r"_?is_(?P<name>\w+?)_(?:available|installed)")
OPERATORS: Final = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
NAMES: Final = {
    "bnb": "bitsandbytes",
    "bnb_4bit": "bitsandbytes",
    "bitsandbytes_multi_backend": "bitsandbytes",
    "pytorch": "torch",
}
HANDLED: Final = frozenset(
    {"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "AttributeError", "RuntimeError"}
)


def conditions_of(test: ast.expr, resolve: Callable[[ast.expr], str]) -> list[str]:
    """Return the conditions that all hold if a test is true. ``resolve`` gives the dotted name of an expression."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return [each for value in values for each in conditions_of(value, resolve)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return [negated(each) for each in single(conditions_of(operand, resolve))]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in OPERATORS:
            return [version_check(left, OPERATORS[type(op)], right, resolve) or OTHER]
        case ast.Call():
            return [call_condition(test, resolve)]
        case ast.Name() | ast.Attribute():
            return [name_condition(resolve(test))]
        case _:
            return [OTHER]


def single(found: list[str]) -> list[str]:
    return found if len(found) == 1 else [OTHER]


def negated(condition: str) -> str:
    if condition == OTHER:
        return OTHER
    return condition.removeprefix("!") if condition.startswith("!") else f"!{condition}"


def name_condition(name: str) -> str:
    last = name.rpartition(".")[2]
    if last == "TYPE_CHECKING":
        return TYPING
    found = AVAILABLE.fullmatch(last)  # a function's result kept in a variable of the same name
    if found:
        return f"has:{NAMES.get(found['name'], found['name'])}"
    return f"ref:{name}" if "." in name else OTHER


def call_condition(call: ast.Call, resolve: Callable[[ast.expr], str]) -> str:
    last = resolve(call.func).rpartition(".")[2]
    words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    found = AVAILABLE.fullmatch(last)
    if found:
        name = NAMES.get(found["name"], found["name"])
        if name == "package" and words:
            name = words[0]
        bounds = [each for each in words if each[:1].isdigit()]
        return f"has:{name}>={bounds[0]}" if bounds else f"has:{name}"
    checked = re.fullmatch(r"(?:is|compare)_(\w+?)_?versions?", last)
    if checked and len(words) > 1:
        name = checked[1] if words[0] in MIRRORED else words[0]
        operator, version = words[-2:]
        return f"ver:{NAMES.get(name, name)}{operator}{version}" if operator in MIRRORED else OTHER
    greater = re.fullmatch(r"is_(\w+?)_greater_or_equal(?:_than)?(?:_(\d+)_(\d+))?", last)
    if greater and (words or greater[2]):
        return f"ver:{greater[1]}>={words[0] if words else f'{greater[2]}.{greater[3]}'}"
    return OTHER


def version_check(left: ast.expr, operator: str, right: ast.expr, resolve: Callable[[ast.expr], str]) -> str:
    """Return the condition of a comparison such as ``version.parse(torch.__version__) >= version.parse("2.1")``."""
    package, bound = version_of_package(left, resolve), literal_version(right)
    if not (package and bound):
        package, bound, operator = version_of_package(right, resolve), literal_version(left), MIRRORED[operator]
    return f"ver:{package}{operator}{bound}" if package and bound else ""


def version_of_package(node: ast.expr, resolve: Callable[[ast.expr], str]) -> str:
    for each in ast.walk(node):
        match each:
            case ast.Attribute(attr="__version__", value=value):
                return resolve(value).partition(".")[0]
            case ast.Call(func=func, args=[ast.Constant(value=str(name))]) if (
                resolve(func).endswith(("metadata.version", ".version")) or resolve(func) == "version"
            ):
                return name if not name[:1].isdigit() else ""
            case ast.Name(id=name) if name.endswith("_version") and name.startswith(("_torch", "_transformers")):
                return name.strip("_").removesuffix("_version")
            case _:
                pass
    return ""


def literal_version(node: ast.expr) -> str:
    """Return the only version that an expression states as a text; empty if there is none."""
    found = [
        each.value
        for each in ast.walk(node)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value[:1].isdigit()
    ]
    return found[0] if len(found) == 1 else ""


def handles_imports(statement: ast.Try) -> bool:
    """Tell if a ``try`` goes on when an import in it fails."""
    return any(
        not any(isinstance(each, ast.Raise) for each in handler.body) and handled(handler.type)
        for handler in statement.handlers
    )


def handled(kind: ast.expr | None) -> bool:
    return kind is None or not HANDLED.isdisjoint(names_in(kind))


def names_in(node: ast.expr) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
