"""Values of parameters in calls, as far as they are plain constants."""

from __future__ import annotations

import ast

import pytest

from matrix.api_map.reading.arguments import arguments_of, bound_values, parameters_of


def values(function: str, call: str, *, is_constructor: bool = False) -> dict[str, str]:
    definition, calling = ast.parse(f"def f({function}): ...\nf({call})\n").body
    assert isinstance(definition, ast.FunctionDef)
    assert isinstance(calling, ast.Expr)
    assert isinstance(calling.value, ast.Call)
    parameters = parameters_of(definition.args, is_constructor=is_constructor)
    return bound_values(parameters, arguments_of(calling.value))


@pytest.mark.parametrize(
    ("function", "call", "expected"),
    [
        ("a, b=True", "1", {"a": "1", "b": "True"}),
        ("a, b=True", "1, b=None", {"a": "1", "b": "None"}),
        ("a, *rest, flag=False", "1, 2", {"a": "1", "flag": "False"}),
        ("a, *, flag=False", "1, flag=True", {"a": "1", "flag": "True"}),
        ("a, b=0", "*xs, True", {"a": "?", "b": "?"}),
        ("a, b=0, c=0", "1, *xs, True", {"a": "1", "b": "?", "c": "?"}),
        ("a=0, *, flag=False", "*xs", {"a": "?", "flag": "False"}),
        ("a=0, b=0", "1, **xs", {"a": "1", "b": "?"}),
        ("a=0, b=0", "b=1, **xs", {"a": "?", "b": "1"}),
        ("a=0, /, b=0, **rest", "a=1, b=2", {"a": "0", "b": "2"}),
        ("a=0, /, b=0", "**xs", {"a": "0", "b": "?"}),
        ("a=x, b=1.5", "", {"a": "?", "b": "?"}),
        ("a", "'b;c'", {"a": "?"}),
    ],
)
def test_a_parameter_has_the_value_of_its_argument(function: str, call: str, expected: dict[str, str]) -> None:
    assert values(function, call) == expected


@pytest.mark.parametrize("first", ["self", "cls", "_"])
def test_only_a_constructor_gets_its_first_parameter_without_an_argument(first: str) -> None:
    assert values(f"{first}, flag", "True", is_constructor=True) == {"flag": "True"}
    assert values(f"{first}, flag", "1, True") == {first: "1", "flag": "True"}
