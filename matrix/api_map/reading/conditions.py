"""Reads the conditions under which a statement runs: functions, exceptions, versions, and what is installed.

A condition is a short text: ``function``, ``try`` (the error of a missing name is handled), ``typing``
(``TYPE_CHECKING``), ``has:NAME`` (an availability check), ``ver:NAME>=1.2`` (a version check), ``ref:MODULE.NAME`` (a
variable that holds a condition), ``arg:NAME`` or ``arg:NAME=VALUE`` (a parameter of the function that is read) or
``if`` (anything else). ``!`` negates it.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from matrix.api_map.packages import MAPPED
from matrix.api_map.reading.arguments import UNKNOWN, value_text

if TYPE_CHECKING:
    from collections.abc import Callable

    Resolve = Callable[[ast.expr], str]  # gives the dotted name of an expression

FUNCTION: Final = "function"
TRY: Final = "try"
TYPING: Final = "typing"
OTHER: Final = "if"
ARGUMENT: Final = "arg:"  # the path of a parameter begins with it

AVAILABLE: Final = re.compile(r"_?is_(?P<name>\w+?)_(?:available|installed)")
OPERATORS: Final = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
NAMES: Final = {
    "bnb": "bitsandbytes",
    "bnb_4bit": "bitsandbytes",
    "bitsandbytes_multi_backend": "bitsandbytes",
    "pytorch": "torch",
}
# Variables such as `_torch_version` and `parsed_torch_version_base`, and functions such as `get_torch_version`, which
# modules import from each other.
VERSION_VARIABLE: Final = re.compile(
    rf"_*(?:parsed_|installed_|get_)?(?P<name>{'|'.join((*MAPPED, *NAMES))})_version(?:_base)?", re.IGNORECASE
)
TELLING: Final = ("has:", "!has:", "ver:", "!ver:")
LEAVING: Final = (ast.Raise, ast.Return, ast.Continue, ast.Break)


def conditions_of(test: ast.expr, resolve: Resolve) -> list[str]:
    """Return the conditions that all hold if a test is true."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            return [each for value in values for each in conditions_of(value, resolve)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return opposite_of(operand, resolve)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return [comparison(left, op, right, resolve) or OTHER]
        case ast.Call():
            return [call_condition(test, resolve)]
        case ast.Name() | ast.Attribute():
            return [name_condition(resolve(test) or getattr(test, "id", ""))]
        case _:
            return [OTHER]


def opposite_of(test: ast.expr, resolve: Resolve) -> list[str]:
    """Return the conditions that all hold if a test is false."""
    match test:
        case ast.BoolOp(op=ast.Or(), values=values):
            return [each for value in values for each in opposite_of(value, resolve)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return conditions_of(operand, resolve)
    found = conditions_of(test, resolve)
    if found == [TYPING]:
        return []  # code that runs is never type checked
    return [negated(found[0])] if len(found) == 1 else [OTHER]


def negated(condition: str) -> str:
    if condition == OTHER:
        return OTHER
    return condition.removeprefix("!") if condition.startswith("!") else f"!{condition}"


def comparison(left: ast.expr, operator: ast.cmpop, right: ast.expr, resolve: Resolve) -> str:
    """Return the condition of a comparison of a version, or of a parameter with a constant; empty for any other one."""
    value = value_text(right)
    if isinstance(left, ast.Name) and value != UNKNOWN and resolve(left).startswith(ARGUMENT):
        text = f"{resolve(left)}={value}"
        return {ast.Is: text, ast.Eq: text, ast.IsNot: f"!{text}", ast.NotEq: f"!{text}"}.get(type(operator), "")
    known = OPERATORS.get(type(operator))
    return version_check(left, known, right, resolve) if known else ""


def conditions_after(statement: ast.stmt, resolve: Resolve) -> list[str]:
    """Return the checks that hold behind a statement: ``if not is_peft_available(): raise ImportError`` is one.

    Tests that cannot be told say nothing of the code behind them, which mostly runs.
    """
    if not isinstance(statement, ast.If):
        return []
    if ends(statement.body):
        held = opposite_of(statement.test, resolve)
        further = statement.orelse[0] if len(statement.orelse) == 1 else None
        held += conditions_after(further, resolve) if further is not None else []
    else:
        held = conditions_of(statement.test, resolve) if ends(statement.orelse) else []
    return [each for each in held if each.startswith(TELLING)]


def ends(body: list[ast.stmt]) -> bool:
    """Tell if no code behind a branch runs."""
    return bool(body) and isinstance(body[-1], LEAVING)


def name_condition(name: str) -> str:
    if name.startswith(ARGUMENT):
        return name if "." not in name else OTHER
    last = name.rpartition(".")[2]
    if last == "TYPE_CHECKING":
        return TYPING
    found = AVAILABLE.fullmatch(last)  # a function's result kept in a variable of the same name
    if found:
        return f"has:{NAMES.get(found['name'], found['name'])}"
    return f"ref:{name}" if "." in name else OTHER


def call_condition(call: ast.Call, resolve: Resolve) -> str:
    last = resolve(call.func).rpartition(".")[2]
    words = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    found = AVAILABLE.fullmatch(last)
    if found:
        name = NAMES.get(found["name"], found["name"])
        if name == "package" and words:
            name = words[0]
        stated = [each.value.value for each in call.keywords if isinstance(each.value, ast.Constant)]
        bounds = [each for each in (*words, *stated) if isinstance(each, str) and each[:1].isdigit()]
        return f"has:{name}>={bounds[0]}" if bounds else f"has:{name}"
    if last == "compare_versions":
        return compared_versions(call, resolve)
    checked = re.fullmatch(r"is_(\w+?)_?version", last)
    if checked and len(words) > 1:
        name = checked[1] if words[0] in MIRRORED else words[0]
        operator, version = words[-2:]
        return f"ver:{NAMES.get(name, name)}{operator}{version}" if operator in MIRRORED else OTHER
    greater = re.fullmatch(r"is_(\w+?)_greater_or_equal(?:_than)?(?:_(\d+)_(\d+))?", last)
    if greater and (words or greater[2]):
        return f"ver:{greater[1]}>={words[0] if words else f'{greater[2]}.{greater[3]}'}"
    return OTHER


def compared_versions(call: ast.Call, resolve: Resolve) -> str:
    """Return the condition of accelerate's ``compare_versions``, whose first argument is a package or its version."""
    match call.args:
        case [ast.Constant(value=str(name)), ast.Constant(value=str(operator)), ast.Constant(value=str(bound))]:
            package = NAMES.get(name, name)
        case [version, ast.Constant(value=str(operator)), ast.Constant(value=str(bound))]:
            package = version_of_package(version, resolve)
        case _:
            return OTHER
    return f"ver:{package}{operator}{bound}" if package and operator in MIRRORED else OTHER


def version_check(left: ast.expr, operator: str, right: ast.expr, resolve: Resolve) -> str:
    """Return the condition of a comparison such as ``version.parse(torch.__version__) >= version.parse("2.1")``."""
    package, bound = version_of_package(left, resolve), literal_version(right)
    if not (package and bound):
        package, bound, operator = version_of_package(right, resolve), literal_version(left), MIRRORED[operator]
    return f"ver:{package}{operator}{bound}" if package and bound else ""


def version_of_package(node: ast.expr, resolve: Resolve) -> str:
    for each in ast.walk(node):
        match each:
            case ast.Attribute(attr="__version__", value=value):
                return resolve(value).partition(".")[0]
            case ast.Call(func=func, args=[ast.Constant(value=str(name))]) if (
                resolve(func).endswith(("metadata.version", ".version")) or resolve(func) == "version"
            ):
                return name if not name[:1].isdigit() else ""
            case ast.Name(id=name) | ast.Attribute(attr=name) if found := VERSION_VARIABLE.fullmatch(name):
                return NAMES.get(found["name"].lower(), found["name"].lower())
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
