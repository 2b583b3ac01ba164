"""Reads what a lazy module's exports need: without it, the module gives a placeholder and does not load theirs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from matrix.api_map.reading.conditions import conditions_after, conditions_of, opposite_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.api_map.reading.conditions import Resolve

UNKNOWN: Final = "unknown"  # a test of anything but the file's name

FileRule = tuple[list[tuple[str, str]], list[str]]  # tests of a file's name, with their text; packages


def under_conditions(
    body: list[ast.stmt], resolve: Resolve, held: tuple[str, ...] = ()
) -> Iterator[tuple[ast.stmt, tuple[str, ...]]]:
    """Yield the statements of a body and of its branches, each with the checks that hold there.

    Exception handlers have none, because their names stand for those that another branch exports.
    """
    for statement in body:
        match statement:
            case ast.If(test=test, body=inner, orelse=other):
                yield from under_conditions(inner, resolve, (*held, *conditions_of(test, resolve)))
                yield from under_conditions(other, resolve, (*held, *opposite_of(test, resolve)))
            case ast.Try(body=inner, handlers=handlers, orelse=other):
                yield from under_conditions(inner, resolve, held)
                for handler in handlers:
                    yield from under_conditions(handler.body, resolve)
                checks = [each for tried in inner for each in conditions_after(tried, resolve)]
                yield from under_conditions(other, resolve, (*held, *checks))
                yield from under_conditions(statement.finalbody, resolve, held)
            case ast.With(body=inner) | ast.For(body=inner):
                yield from under_conditions([*inner, *getattr(statement, "orelse", ())], resolve, held)
            case _:
                yield statement, held


def needed(held: tuple[str, ...]) -> str:
    """Return the conditions of an export, of which only checks for packages count."""
    return ";".join(sorted({each for each in held if each.startswith("has:")}))


def of_packages(names: list[str]) -> str:
    return needed(tuple(f"has:{each}" for each in names))


def required_backends(node: ast.ClassDef | ast.FunctionDef) -> list[str] | None:
    """Return the packages that ``@requires(backends=(...))`` states for a class or function; None without it."""
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and ast.unparse(each.func).rpartition(".")[2] == "requires":
            return [
                value.value
                for keyword in each.keywords
                for value in ast.walk(keyword.value)
                if isinstance(value, ast.Constant) and isinstance(value.value, str)
            ]
    return None


def file_rules(value: ast.expr) -> list[FileRule]:
    """Return the rules of transformers' ``BASE_FILE_REQUIREMENTS``: which packages a file needs, by its name.

    A rule is a function such as ``lambda name: "modeling_" in name``.
    """
    found: list[FileRule] = []
    for test, packages in zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ():
        if isinstance(test, ast.Lambda) and isinstance(packages, ast.Tuple):
            listed = [str(each.value) for each in packages.elts if isinstance(each, ast.Constant)]
            found.append((list(name_tests(test.body)), listed))
    return found


def name_tests(test: ast.expr) -> Iterator[tuple[str, str]]:
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            for each in values:
                yield from name_tests(each)
        case ast.Compare(left=ast.Constant(value=str(text)), ops=[ast.In()], comparators=[ast.Name(id="name" | "e")]):
            yield "in", text
        case ast.Call(
            func=ast.Attribute(value=ast.Name(), attr="startswith" | "endswith" as test_name),
            args=[ast.Constant(value=str(text))],
        ):
            yield test_name, text
        case _:
            yield UNKNOWN, ""


def needed_by_file(name: str, rules: list[FileRule]) -> list[str]:
    """Return the packages that a file needs by its name, without ``.py``; none if a rule cannot be told."""
    for tests, packages in rules:
        known = [(kind, text) for kind, text in tests if kind != UNKNOWN]
        if all(passes(name, kind, text) for kind, text in known):
            return packages if len(known) == len(tests) else []
    return []


def passes(name: str, kind: str, text: str) -> bool:
    return {"in": text in name, "startswith": name.startswith(text), "endswith": name.endswith(text)}[kind]
